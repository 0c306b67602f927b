//! The suites of the command in one program, which is compiled and linked once. Suites that need a
//! process of their own lie beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod backup;
mod cli;
mod dump;
mod in_place;
mod lab;
mod limits;
mod nvram_group_commit;
mod pcm_logging;
