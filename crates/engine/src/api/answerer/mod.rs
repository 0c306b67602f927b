//! Answers questions of other processes about a database that this one has open.
//!
//! A thread waits at a local socket ([`LocalListener`]). A process that connects gets a line of
//! greeting and sends a line. It asks a question ([`ask`]) and gets an answer: a line that says how
//! it went, and text. Or it reads records through a snapshot ([`RemoteSnapshot`]). Each process is
//! served by a thread of its own, as long as there are not too many. One that does not send its
//! question, or take its answer, within some seconds is left; one that reads a snapshot may pause
//! for minutes. Where the system refuses the socket, the database does without.
//!
//! The thread does not keep the database open while it waits. The thread that closes the database,
//! or drops the last handle, breaks the answers off and waits for their ends.

mod answers;
mod question;
mod remote_snapshot;

pub use question::{Answer, Question, ask};
pub use remote_snapshot::RemoteSnapshot;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use duramen_io::LocalListener;
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Condvar, Mutex, References, Weak};

use crate::engine::Engine;
use question::{FAILED, GREETING, LONGEST};

/// How long each side may take to greet, to send a question, and to take a part of an answer.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(5);

/// The most processes that are served at once. Further ones wait, and give up after a time.
const MOST_AT_ONCE: usize = 8;

/// The most of them that may read snapshots. These stay long, and the others want an answer.
const MOST_READERS: usize = 6;

/// The socket, and the thread that waits there.
#[derive(Debug)]
pub(super) struct Answerer {
    desk: Arc<Desk>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread works with.
#[derive(Debug)]
struct Desk {
    listener: LocalListener,
    served: Arc<Served>,
}

/// The processes that are served. Apart from the desk: a thread that has just served the last one
/// must not hold the socket's name.
#[derive(Debug, Default)]
struct Served {
    visitors: Mutex<Visitors>,
    /// There is one less.
    one_less: Condvar,
}

/// By their numbers.
#[derive(Debug, Default)]
struct Visitors {
    present: BTreeMap<u64, Visitor>,
    next: u64,
}

#[derive(Debug)]
struct Visitor {
    stream: UnixStream,
    reads_snapshot: bool,
}

/// One process that is served. Its connection ends when this is dropped.
struct Visit {
    served: Arc<Served>,
    number: u64,
}

impl Served {
    /// Notes a process, as soon as there are not too many.
    fn admit(self: &Arc<Self>, stream: &UnixStream) -> std::io::Result<Visit> {
        let stream = stream.try_clone()?;
        let mut visitors = self.visitors.lock();
        while visitors.present.len() >= MOST_AT_ONCE {
            self.one_less.wait(&mut visitors);
        }
        let number = visitors.next;
        visitors.next += 1;
        visitors.present.insert(number, Visitor { stream, reads_snapshot: false });
        Ok(Visit { served: Arc::clone(self), number })
    }

    /// Breaks all connections off.
    fn break_off(&self) {
        self.visitors.lock().present.values().for_each(Visitor::dismiss);
    }

    fn wait_for_all(&self) {
        let mut visitors = self.visitors.lock();
        while !visitors.present.is_empty() {
            self.one_less.wait(&mut visitors);
        }
    }
}

impl Visitor {
    /// Ends the connection, also where a child of this process has a copy of the descriptor. What
    /// has been sent can still be read.
    fn dismiss(&self) {
        // The other side may have gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl Visit {
    /// Notes that the process reads a snapshot; returns whether it may.
    fn begin_snapshot(&self) -> bool {
        let mut visitors = self.served.visitors.lock();
        let readers = visitors.present.values().filter(|visitor| visitor.reads_snapshot).count();
        let visitor = visitors.present.get_mut(&self.number).expect("it stays until the end of the visit");
        visitor.reads_snapshot = readers < MOST_READERS;
        visitor.reads_snapshot
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if let Some(visitor) = self.served.visitors.lock().present.remove(&self.number) {
            visitor.dismiss();
        }
        self.served.one_less.notify_all();
    }
}

impl Desk {
    fn close(&self) {
        self.listener.close();
        self.served.break_off();
    }
}

impl Answerer {
    /// Begins to answer questions about the database in the directory `home`; returns nothing if
    /// the system permits no socket or no thread.
    pub(super) fn start(home: &Path, engine: Weak<Engine>) -> Option<Self> {
        let desk = Arc::new(Desk { listener: LocalListener::bind(home).ok()?, served: Arc::default() });
        let waiting = Arc::clone(&desk);
        let thread = thread::spawn("duramen-answerer", move || attend(&waiting, &engine)).ok()?;
        Some(Self { desk, thread: Mutex::new(Some(thread)) })
    }

    /// Breaks off all answers, and takes no more questions.
    pub(super) fn close(&self) {
        self.desk.close();
    }

    /// As [`Self::close`], and waits for the threads, which hold the database.
    pub(super) fn stop(&self) {
        self.close();
        if let Some(thread) = self.thread.lock().take()
            && !thread::is_current(&thread)
        {
            // A panic has ended the thread before.
            let _ = thread.join();
        }
        self.desk.served.wait_for_all();
    }
}

/// Closes the desk when the thread ends, however it does: then nobody waits there.
struct Closing<'d>(&'d Desk);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn attend(desk: &Desk, engine: &Weak<Engine>) {
    let _closing = Closing(desk);
    while let Some(stream) = desk.listener.accept() {
        // Where too many files are open, the process finds its connection closed.
        let Ok(visit) = desk.served.admit(&stream) else { continue };
        let Some(engine) = engine.upgrade() else { return };
        // The thread that closes the desk sets this, and then looks for the visitors.
        if desk.listener.is_closed() {
            return;
        }
        let serving = move || {
            // Ends when the database is no longer held.
            let visit = visit;
            // A process that goes away gets no answer.
            let _ = serve(engine, &stream, &visit);
        };
        // Where the system permits no more threads, the process finds its connection closed.
        let _ = thread::spawn("duramen-answer", serving);
    }
}

fn serve(engine: Arc<Engine>, stream: &UnixStream, visit: &Visit) -> std::io::Result<()> {
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    let (mut line, mut to, engine) = (String::new(), stream, References::new(engine));
    writeln!(to, "{GREETING}")?;
    let mut from = BufReader::new(stream);
    from.by_ref().take(LONGEST).read_line(&mut line)?;
    let line = line.strip_suffix('\n').unwrap_or_default();
    if line == remote_snapshot::SNAPSHOT {
        return match visit.begin_snapshot() {
            true => remote_snapshot::show(&engine, from),
            false => writeln!(to, "{FAILED}\n{MOST_READERS} processes read snapshots already; wait for one of them"),
        };
    }
    let Some(question) = Question::parse(line) else { return writeln!(to, "{FAILED}\nit does not know the question") };
    match answers::answer(&engine, &question, stream) {
        Ok((outcome, text)) => write!(to, "{outcome}\n{text}"),
        Err(error) => write!(to, "{FAILED}\n{error}"),
    }
}
