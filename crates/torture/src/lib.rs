//! The torture suites of Duramen.
//!
//! | suite | module | what it tries |
//! |---|---|---|
//! | crashes | [`crash`] | the power goes off at any disk operation, in recovery too; every state the disk may be in; with the end of the log in files or in persistent memory ([`world`]) |
//! | I/O errors | [`faults`] | any disk operation fails, once or from then on; the disk or the log fills up; failed syncs drop data |
//! | corruption | [`corruption`] | any bit of a closed database flips, any file is lost or cut |
//! | misplaced | [`misplaced`] | files, rings and pages are those of another time, of another database, or of each other |
//! | restore | [`restore`] | a database that is archived is restored from a backup, after crashes, to its end and to moments before |
//! | isolation | [`isolation`] | every interleaving of the known anomalies; random histories checked for cycles |
//! | the log alone | [`log`] | many threads insert and harden, with crashes in between; for simulations |
//! | simulation | `simulation`, in the machine build | all of it on a simulated machine, with any interleaving of threads |
//! | the matrix | [`matrix`] | crashes and isolation with every layout of the log, device and persistence domain |
//! | planted bugs | [`hunt`] | each deliberate defect of the engine is noticed by the suites above |
//!
//! All randomness comes from one seed, which the suite prints. A failure is reported with the
//! command that repeats it.

pub mod circumstances;
pub mod client;
pub mod corruption;
pub mod crash;
pub mod faults;
pub mod harness;
pub mod hunt;
pub mod isolation;
pub mod judge;
pub mod log;
pub mod matrix;
pub mod memory;
pub mod misplaced;
pub mod model;
pub mod oracle;
pub mod parts;
pub mod restore;
pub mod script;
#[cfg(duramen_machine)]
pub mod simulation;
pub mod step;
pub mod variant;
pub mod workloads;
pub mod world;
