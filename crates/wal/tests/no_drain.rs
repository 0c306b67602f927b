//! Rings whose processors cannot be drained. A process of its own, because the program uses the
//! signal for itself.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use duramen_io::{Disk, SimDisk};
use duramen_pmem::{Domain, DrainBy, Guarantee, Source, Survive};
use duramen_sync::Arc;
use duramen_wal::{Log, LogDevice, NvmOptions, WalError, WalOptions};

/// A thread that waited for a straggler waited for ever.
#[test]
fn a_ring_that_needs_a_signal_in_use_is_refused() {
    // SAFETY: nothing sends the signal, and it may be ignored.
    unsafe { libc::signal(libc::SIGRTMIN() + 7, libc::SIG_IGN) };
    let create = |domain, stated, drain| {
        let nvm = NvmOptions {
            drain,
            stated: Some(stated),
            survive: Survive::Nothing,
            ..NvmOptions::new(Source::Anonymous, domain)
        };
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let options = WalOptions {
            device: LogDevice::Nvm(nvm),
            ring_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            ..WalOptions::default()
        };
        Log::create(&disk, &options, [1; 16])
    };
    let refused = create(Domain::VolatileCache, Guarantee::VolatileCache, DrainBy::Signal).unwrap_err();
    assert!(matches!(&refused, WalError::InvalidOption { option: "drain", .. }), "{refused}");
    assert!(create(Domain::DurableCache, Guarantee::DurableCache, DrainBy::Signal).is_ok(), "nothing is streamed");
    assert!(create(Domain::VolatileCache, Guarantee::VolatileCache, DrainBy::Membarrier).is_ok());
}
