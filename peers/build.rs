//! Refuses to build a SQLite that syncs more than it must.

fn main() {
    println!("cargo:rerun-if-env-changed=LIBSQLITE3_FLAGS");
    let flags = std::env::var("LIBSQLITE3_FLAGS").unwrap_or_default();
    assert!(
        flags.contains("HAVE_FDATASYNC"),
        "build inside `peers/`: its .cargo/config.toml sets LIBSQLITE3_FLAGS=-DHAVE_FDATASYNC=1, \
         without which SQLite calls fsync instead of fdatasync"
    );
}
