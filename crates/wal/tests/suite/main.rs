//! The suites of the log in one program, which is compiled and linked once. Suites that need a
//! process of their own lie beside this folder.

#[path = "../common/mod.rs"]
mod common;

mod archive;
mod archive_several;
mod basic;
mod copies;
mod crash;
mod damage;
mod growth;
mod logs;
mod nvm;
mod real_disk;
mod stress;
