//! Where threads come from, and what stands above unsafe code.

use crate::modules::Modules;
use crate::repository::{Breach, Repository};

/// Threads, atomics, locks and clocks of the standard library. The `sync` crate has them, in builds
/// that can be modelled.
const FROM_SYNC: [&str; 8] = [
    "std::sync::atomic",
    "std::sync::Mutex",
    "std::sync::RwLock",
    "std::sync::Condvar",
    "std::sync::Barrier",
    "std::sync::mpsc",
    "std::thread",
    "std::time::Instant",
];

/// How many lines above an `unsafe` its reason may begin.
const REASON_WITHIN: usize = 4;

/// Threads, atomics, locks and clocks come from the `sync` crate, but in tests.
pub(crate) fn threads(name: &str, modules: &Modules) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for mention in &modules.mentions {
        let path = mention.path.join("::");
        let is_below =
            |item: &str| path.strip_prefix(item).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        if FROM_SYNC.iter().any(|item| is_below(item)) {
            breaches.push(Breach {
                rule: "threads",
                path: format!("crates/{name}/src/{}", modules.files[modules.file_of(mention.module)]),
                line: Some(mention.line),
                what: format!("{path}: take it from duramen_sync"),
            });
        }
    }
    breaches
}

/// Every unsafe block says why it is sound.
pub(crate) fn reasons(repository: &Repository) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in repository.rust() {
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.trim_start().trim_start_matches("pub ");
            let opens = ["unsafe {", "unsafe impl"].iter().any(|start| code.starts_with(start));
            let opens = opens || code.contains(concat!("= ", "unsafe {"));
            let above = &lines[index.saturating_sub(REASON_WITHIN)..=index];
            if opens && !code.starts_with("//") && !above.iter().any(|line| line.contains("SAFETY")) {
                breaches.push(file.breach("safety", Some(index + 1), "unsafe without a SAFETY line"));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::tests::crate_of;
    use crate::repository::tests::repository;

    #[test]
    fn threads_of_the_standard_library_are_breaches() {
        let source = "
            use std::sync::{Arc, Mutex};
            use std::{sync::atomic::AtomicU64, time::Duration};
            fn f() { std::thread::yield_now(); let now = std::time::Instant::now(); }
            use std::threads;
            #[cfg(test)]
            mod model { use std::thread; }
        ";
        let modules = crate_of(&[("lib.rs", "mod a;"), ("a.rs", source)]);
        let breaches = threads("x", &modules);
        assert_eq!(breaches.iter().filter_map(|breach| breach.line).collect::<Vec<_>>(), [2, 3, 4, 4]);
        assert_eq!(
            breaches[0].to_string(),
            "crates/x/src/a.rs:2: std::sync::Mutex: take it from duramen_sync [threads]"
        );
    }

    #[test]
    fn unsafe_without_its_reason_is_a_breach() {
        let lines = |source: &str| {
            let source = source.replace("UNSAFE", "unsafe");
            reasons(&repository(&[("a.rs", &source)])).iter().filter_map(|breach| breach.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("let a = UNSAFE { b() };\n"), [1]);
        assert_eq!(lines("    UNSAFE { b() }\npub UNSAFE impl Send for A {}\nUNSAFE impl Sync for A {}\n"), [1, 2, 3]);
        assert_eq!(lines("// SAFETY: b may be called.\nlet a = UNSAFE { b() };\n"), []);
        assert_eq!(lines("// SAFETY: 1\n2\n3\n4\nUNSAFE { b() }\nUNSAFE { c() }\n"), [6]);
        assert_eq!(lines("// As in `let a = UNSAFE { b() }`.\nUNSAFE fn c() {}\n"), []);
    }
}
