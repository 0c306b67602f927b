//! That a public function has an example, which the documentation's tests run.

use crate::repository::{Breach, Repository};

/// The crate that applications use. What is public in it can be reached from outside, as the
/// compiler's lint `unreachable_pub` has it.
const SOURCES: &str = "crates/engine/src/";

/// What stands behind the fence of an example that is compiled and run.
const TESTED: [&str; 3] = ["", "rust", "should_panic"];

/// A public function without an example in its documentation is a breach.
pub(crate) fn functions(repository: &Repository) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for file in repository.rust().filter(|file| file.path.starts_with(SOURCES)) {
        let (mut has_example, mut in_fence, mut trait_methods) = (false, false, false);
        for (number, line) in file.lines() {
            let code = line.trim_start();
            if let Some(doc) = code.strip_prefix("///") {
                if let Some(info) = doc.trim_start().strip_prefix("```") {
                    in_fence = !in_fence;
                    has_example |= in_fence && TESTED.contains(&info);
                }
                continue;
            }
            if code.starts_with("#[") {
                continue;
            }
            if !line.starts_with(' ') && !line.is_empty() {
                trait_methods = code.starts_with("pub trait ");
            }
            let name = code.strip_prefix("pub ").or(trait_methods.then_some(code)).and_then(name);
            if let Some(name) = name.filter(|_| !has_example) {
                let what = format!("the public function `{name}` has no example in its documentation");
                breaches.push(file.breach("examples", Some(number), what));
            }
            (has_example, in_fence) = (false, false);
        }
    }
    breaches
}

/// The name of the function that is declared here.
fn name(code: &str) -> Option<&str> {
    let code = ["const ", "unsafe ", "async "].iter().fold(code, |code, word| code.strip_prefix(word).unwrap_or(code));
    let rest = code.strip_prefix("fn ")?;
    rest.split(['(', '<']).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::tests::repository;

    fn without(text: &str) -> Vec<String> {
        let breaches = functions(&repository(&[("crates/engine/src/a.rs", text)]));
        breaches.into_iter().map(|breach| breach.what.split('`').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn a_public_function_has_an_example() {
        let example = "/// Does it.\n/// ```\n/// a::f();\n/// ```\n#[must_use]\n";
        assert_eq!(without(&format!("{example}pub fn f() {{}}\n")), Vec::<String>::new());
        assert_eq!(without("/// Does it.\npub fn f() {}\n"), ["f"]);
        assert_eq!(without("/// ```text\n/// a\n/// ```\npub fn f() {}\n"), ["f"], "which is no test");
        assert_eq!(without(&format!("{example}pub struct S;\npub const fn f<T>() {{}}\n")), ["f"], "of its own");
        assert_eq!(without("    pub fn f(&self) {}\n    pub(crate) fn g() {}\n    fn h() {}\n"), ["f"]);
    }

    #[test]
    fn so_has_a_method_of_a_public_trait() {
        assert_eq!(without("pub trait T {\n    fn f();\n}\nimpl T for S {\n    fn f() {}\n}\n"), ["f"]);
        assert_eq!(without("trait T {\n    fn f();\n}\n"), Vec::<String>::new());
        assert_eq!(functions(&repository(&[("crates/wal/src/a.rs", "pub fn f() {}\n")])), []);
    }
}
