//! The suites of the engine in one program, which is compiled and linked once. Suites that need a
//! process of their own lie beside this folder.

#[path = "../common/archived.rs"]
mod archived;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/every_scheme.rs"]
mod every_scheme;
#[path = "../common/fixture.rs"]
mod fixture;

mod archive;
mod archive_kept;
mod backup;
mod backup_several;
mod basics;
mod bulk_load;
mod change_tables;
mod check;
mod commit;
mod commit_path;
mod compact;
mod concurrent_tables;
mod delete_range;
mod dirty_pages;
mod escalation;
mod full_disk;
mod full_log;
mod ghosts;
mod heap_files;
mod in_memory;
mod in_place;
mod inspect;
mod inspect_heap;
mod instant_recovery;
mod large_loser;
mod logs;
mod moved;
mod nvram_group_commit;
mod older_formats;
mod open_files;
mod opening_checkpoint;
mod openings;
mod options;
mod own_threads;
mod page_tier;
mod pcm_basic;
mod pcm_logging;
mod questions;
mod ranges;
mod readme;
mod recovery;
mod recovery_target;
mod regions;
mod snapshot_restore;
mod snapshots;
