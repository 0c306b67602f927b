//! `duramen check`.

use std::io::Write;

use duramen::Db;
use duramen::inspect::Question;
use duramen_workloads::selection::audit_all;
use duramen_workloads::tpcb::{Ledger, verify};

use crate::args::CheckArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;

pub(crate) fn check(args: &CheckArgs, out: &mut dyn Write) -> Result<()> {
    // Read first: a ledger that is not there is the user's mistake, not the database's.
    let acknowledged = args.ledger.as_deref().map(Ledger::read).transpose()?;
    if args.ledger.is_none()
        && let Some(answer) = database::ask(&args.dir, &Question::Check)?
    {
        write!(out, "process {} has the database open\n{}", answer.process, answer.text)?;
        return match answer.is_damaged {
            true => Err(Failure::Damage(format!("{} is damaged", args.dir.display()))),
            false => Ok(writeln!(out, "ok")?),
        };
    }
    let db = database::open_existing(&args.dir, &args.open)?;
    if let Some(recovery) = database::recovery(&db) {
        writeln!(out, "recovery: {recovery}")?;
    }
    let mut problems = check_structure(&db, out)?;
    let mut audit = audit_all(&db)?;
    if let Some(acknowledged) = acknowledged {
        audit.merge(verify(&db, &acknowledged)?);
    }
    for fact in audit.facts() {
        writeln!(out, "{fact}")?;
    }
    for problem in audit.problems() {
        writeln!(out, "problem: {problem}")?;
    }
    problems += audit.problem_count();
    db.close()?;
    if problems > 0 {
        return Err(Failure::Damage(format!("{} is damaged: {problems} problems", args.dir.display())));
    }
    Ok(writeln!(out, "ok")?)
}

/// Checks pages and trees; returns the number of problems.
fn check_structure(db: &Db, out: &mut dyn Write) -> Result<u64> {
    let report = db.check()?;
    writeln!(
        out,
        "structure: {} tables, {} pages, {} records, {} ghosts, {} free pages",
        format::count(report.tables),
        format::count(report.pages),
        format::count(report.records),
        format::count(report.ghosts),
        format::count(report.free_pages)
    )?;
    for problem in &report.problems {
        writeln!(out, "problem: {problem}")?;
    }
    Ok(report.problems.len() as u64)
}
