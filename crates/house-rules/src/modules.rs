//! The modules of one crate, what each declares and imports, and where a path leads.
//!
//! Names are resolved as far as files need it: modules, items, `use` with re-exports and globs.
//! Types are not known, so a method call names no file. What only tests see (`#[cfg(test)]`,
//! `tests.rs`, `*_tests.rs`) is left out.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token, UseTree};

/// The modules of a crate.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Paths of the source files, relative to `src`.
    pub(crate) files: Vec<String>,
    /// Every path that the code mentions.
    pub(crate) mentions: Vec<Mention>,
    /// The types of `impl` blocks without a trait.
    pub(crate) implementations: Vec<Mention>,
    modules: Vec<Module>,
}

/// A path written in a module.
#[derive(Debug)]
pub(crate) struct Mention {
    pub(crate) module: usize,
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Module(usize),
    Item { file: usize, name: String },
}

#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    names: HashMap<String, Vec<Definition>>,
    globs: Vec<Vec<String>>,
}

#[derive(Debug)]
enum Definition {
    Module(usize),
    Item,
    Use(Vec<String>),
}

impl Modules {
    /// Reads the crate whose sources lie in `src`: the library and its binaries.
    ///
    /// # Errors
    ///
    /// A message with the file that cannot be read or parsed.
    pub(crate) fn read(src: &Path) -> Result<Self, String> {
        let mut modules = Self::default();
        let mut roots = vec!["lib.rs".to_owned(), "main.rs".to_owned()];
        for entry in fs::read_dir(src.join("bin")).into_iter().flatten().flatten() {
            roots.push(format!("bin/{}", entry.file_name().to_string_lossy()));
        }
        for root in roots {
            if src.join(&root).is_file() {
                modules.read_file(src, root, None)?;
            }
        }
        Ok(modules)
    }

    /// The file of a module.
    pub(crate) fn file_of(&self, module: usize) -> usize {
        self.modules[module].file
    }

    /// Where `path` leads from `module`; nothing if it leaves the crate.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Vec<Target> {
        self.follow(module, path, &mut Vec::new())
    }

    fn follow(&self, from: usize, path: &[String], seen: &mut Vec<(usize, String)>) -> Vec<Target> {
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut at = match first.as_str() {
            "crate" => vec![Target::Module(self.root(from))],
            "self" => vec![Target::Module(from)],
            "super" => self.modules[from].parent.map(Target::Module).into_iter().collect(),
            name => self.look_up(from, name, seen),
        };
        for name in rest {
            let inside: Vec<usize> = at
                .iter()
                .filter_map(|target| match target {
                    Target::Module(module) => Some(*module),
                    Target::Item { .. } => None,
                })
                .collect();
            let Some(&module) = inside.first() else { return at };
            at = match name.as_str() {
                "self" => at,
                "super" => self.modules[module].parent.map(Target::Module).into_iter().collect(),
                _ => inside.iter().flat_map(|&module| self.look_up(module, name, seen)).collect(),
            };
            if at.is_empty() {
                // A macro made it, or the module passes it on from another crate.
                return vec![Target::Item { file: self.modules[module].file, name: name.clone() }];
            }
        }
        at
    }

    /// What `name` means in `module`. `seen` holds the imports being followed, as imports can be
    /// circular.
    fn look_up(&self, module: usize, name: &str, seen: &mut Vec<(usize, String)>) -> Vec<Target> {
        let key = (module, name.to_owned());
        let again = seen.contains(&key);
        seen.push(key);
        let Module { file, names, globs, .. } = &self.modules[module];
        let mut found = Vec::new();
        for definition in names.get(name).into_iter().flatten() {
            match definition {
                Definition::Module(module) => found.push(Target::Module(*module)),
                Definition::Item => found.push(Target::Item { file: *file, name: name.to_owned() }),
                Definition::Use(path) if !again => found.extend(self.follow(module, path, seen)),
                Definition::Use(_) => {}
            }
        }
        if found.is_empty() && !again {
            for glob in globs {
                for target in self.follow(module, glob, seen) {
                    if let Target::Module(inside) = target {
                        found.extend(self.look_up(inside, name, seen));
                    }
                }
            }
        }
        seen.pop();
        found
    }

    fn root(&self, mut module: usize) -> usize {
        while let Some(parent) = self.modules[module].parent {
            module = parent;
        }
        module
    }

    /// Reads the module in `file` and those below it; returns its number.
    fn read_file(&mut self, src: &Path, file: String, parent: Option<usize>) -> Result<usize, String> {
        let path = src.join(&file);
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let syntax = syn::parse_file(&text)
            .map_err(|error| format!("{}:{}: {error}", path.display(), error.span().start().line))?;
        let folder = folder_of(&file);
        self.files.push(file);
        let module = self.add(self.files.len() - 1, parent);
        let mut collector = Collector { modules: self, src, folder, module, error: None };
        collector.module_items(&syntax.items);
        collector.error.map_or(Ok(module), Err)
    }

    fn add(&mut self, file: usize, parent: Option<usize>) -> usize {
        self.modules.push(Module { file, parent, names: HashMap::new(), globs: Vec::new() });
        self.modules.len() - 1
    }
}

/// The folder, with a slash at its end, in which the children of the module in `file` lie.
pub(crate) fn folder_of(file: &str) -> String {
    let (folder, name) = file.rsplit_once('/').map_or(("", file), |(folder, name)| (folder, name));
    let inside = if folder.is_empty() || folder == "bin" { String::new() } else { format!("{folder}/") };
    match name {
        "mod.rs" | "lib.rs" | "main.rs" => inside,
        _ if folder == "bin" => inside,
        _ => format!("{inside}{}/", name.trim_end_matches(".rs")),
    }
}

/// Collects what one file declares and mentions.
struct Collector<'a> {
    modules: &'a mut Modules,
    src: &'a Path,
    folder: String,
    module: usize,
    error: Option<String>,
}

impl Collector<'_> {
    fn module_items(&mut self, items: &[Item]) {
        for item in items {
            if let Some(name) = item_name(item)
                && !only_in_tests(attributes(item))
            {
                self.define(name, Definition::Item);
            }
            self.visit_item(item);
        }
    }

    /// The file of a module that is declared without its content.
    fn file_of_child(&self, item: &syn::ItemMod) -> String {
        if let Some(path) = named_path(&item.attrs) {
            let file = &self.modules.files[self.modules.file_of(self.module)];
            let folder = file.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
            return format!("{folder}{path}");
        }
        let beside = format!("{}{}.rs", self.folder, item.ident);
        if self.src.join(&beside).is_file() { beside } else { format!("{}{}/mod.rs", self.folder, item.ident) }
    }

    fn define(&mut self, name: String, definition: Definition) {
        self.modules.modules[self.module].names.entry(name).or_default().push(definition);
    }

    fn mention(&mut self, path: Vec<String>, line: usize) {
        self.modules.mentions.push(Mention { module: self.module, path, line });
    }

    fn import(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &syn::Ident| {
            let mut path = prefix.to_vec();
            if name != "self" || path.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        let (ident, path, alias) = match tree {
            UseTree::Path(inner) => return self.import(&inner.tree, &with(&inner.ident)),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, prefix)),
            UseTree::Glob(_) => return self.modules.modules[self.module].globs.push(prefix.to_vec()),
            UseTree::Name(name) => (&name.ident, with(&name.ident), None),
            UseTree::Rename(rename) => (&rename.ident, with(&rename.ident), Some(rename.rename.to_string())),
        };
        let Some(name) = alias.or_else(|| path.last().cloned()) else { return };
        self.mention(path.clone(), ident.span().start().line);
        self.define(name, Definition::Use(path));
    }

    /// Paths among the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut member = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(ident) if !member => {
                    let mut path = vec![ident.to_string()];
                    while let Some(TokenTree::Punct(colon)) = tokens.peek()
                        && colon.as_char() == ':'
                        && colon.spacing() == proc_macro2::Spacing::Joint
                    {
                        tokens.next();
                        tokens.next();
                        let Some(TokenTree::Ident(ident)) = tokens.peek() else { break };
                        path.push(ident.to_string());
                        tokens.next();
                    }
                    self.mention(path, ident.span().start().line);
                }
                TokenTree::Punct(punct) => {
                    member = punct.as_char() == '.';
                    continue;
                }
                _ => {}
            }
            member = false;
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_in_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !only_in_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let (None, syn::Type::Path(implementor)) = (&item.trait_, &*item.self_ty) {
            let (path, line) = segments(&implementor.path);
            self.modules.implementations.push(Mention { module: self.module, path, line });
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if is_test_module(&name) {
            return;
        }
        let child = if let Some((_, items)) = &item.content {
            let child = self.modules.add(self.modules.file_of(self.module), Some(self.module));
            let (outer, folder) = (self.module, self.folder.clone());
            self.folder = format!("{folder}{name}/");
            self.module = child;
            self.module_items(items);
            (self.module, self.folder) = (outer, folder);
            child
        } else {
            let file = self.file_of_child(item);
            match self.modules.read_file(self.src, file, Some(self.module)) {
                Ok(child) => child,
                Err(error) => {
                    self.error.get_or_insert(error);
                    return;
                }
            }
        };
        self.define(name, Definition::Module(child));
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let (path, line) = segments(path);
            self.mention(path, line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }

    // Neither says that the code needs something.
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

/// The names in a path, and the line where it begins.
fn segments(path: &syn::Path) -> (Vec<String>, usize) {
    let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    (names, path.segments.first().map_or(0, |first| first.ident.span().start().line))
}

/// The value of `#[path = "..."]`.
fn named_path(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    })
}

fn is_test_module(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests")
}

/// Whether an item exists in no build but that of the tests.
fn only_in_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args::<Meta>().is_ok_and(|condition| without_tests(&condition) == Some(false))
    })
}

/// What a condition of `cfg` comes to when tests are not built; none where that depends on other
/// conditions.
fn without_tests(condition: &Meta) -> Option<bool> {
    if condition.path().is_ident("test") {
        return Some(false);
    }
    let Meta::List(list) = condition else { return None };
    let parts: Vec<Option<bool>> = list
        .parse_args_with(syn::punctuated::Punctuated::<Meta, Token![,]>::parse_terminated)
        .ok()?
        .iter()
        .map(without_tests)
        .collect();
    if list.path.is_ident("not") {
        parts.first().copied().flatten().map(|value| !value)
    } else if list.path.is_ident("all") {
        parts.contains(&Some(false)).then_some(false)
    } else if list.path.is_ident("any") {
        parts.iter().all(|part| *part == Some(false)).then_some(false)
    } else {
        None
    }
}

fn item_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A crate of these sources, by path below `src`.
    pub(crate) fn crate_of(sources: &[(&str, &str)]) -> Modules {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in sources {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Modules::read(folder.path()).unwrap()
    }

    /// Every import of a file from another, as `FROM -> TO: NAME`.
    fn imports(sources: &[(&str, &str)]) -> Vec<String> {
        let modules = crate_of(sources);
        let mut found = Vec::new();
        for mention in &modules.mentions {
            let from = &modules.files[modules.file_of(mention.module)];
            for target in modules.resolve(mention.module, &mention.path) {
                if let Target::Item { file, name } = target
                    && modules.files[file] != *from
                {
                    found.push(format!("{from} -> {}: {name}", modules.files[file]));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn imports_lead_to_the_file_that_defines_the_name() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::{self, X, inner::{Y as Z, W}};\nfn f() { b::g(); }"),
            ("b/mod.rs", "pub use inner::V; pub mod inner; pub struct X; pub fn g() { super::c::h() }"),
            ("b/inner.rs", "pub struct Y; pub struct W; pub struct V; use self::super::X;"),
            ("c.rs", "use crate::b::V; pub fn h() {}"),
        ];
        assert_eq!(
            imports(&sources),
            [
                "a.rs -> b/inner.rs: W",
                "a.rs -> b/inner.rs: Y",
                "a.rs -> b/mod.rs: X",
                "a.rs -> b/mod.rs: g",
                "b/inner.rs -> b/mod.rs: X",
                "b/mod.rs -> b/inner.rs: V",
                "b/mod.rs -> c.rs: h",
                "c.rs -> b/inner.rs: V",
            ]
        );
    }

    #[test]
    fn globs_macros_and_types_count_as_imports() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e; mod all { pub use super::e::*; }"),
            ("a.rs", "fn f() { assert_eq!(crate::b::g(1), [super::c::X]); }"),
            ("b.rs", "use super::d::*;\nimpl Trait for Vec<crate::c::Y> {}\npub fn g() {}"),
            ("c.rs", "use crate::all::E; pub struct X; pub struct Y; fn f(x: u8) { match x { E::V => {} _ => {} } }"),
            ("d.rs", "pub trait Trait {}"),
            ("e.rs", "pub enum E { V }"),
        ];
        assert_eq!(
            imports(&sources),
            ["a.rs -> b.rs: g", "a.rs -> c.rs: X", "b.rs -> c.rs: Y", "b.rs -> d.rs: Trait", "c.rs -> e.rs: E"]
        );
    }

    #[test]
    fn a_module_may_lie_in_a_file_of_another_name() {
        let module =
            "#[cfg(unix)] #[path = \"unix.rs\"] mod system;\n#[cfg(not(unix))] #[path = \"other.rs\"] mod system;";
        let sources = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", &format!("{module} pub use system::f;")),
            ("a/unix.rs", "pub fn f() {}"),
            ("a/other.rs", "pub fn f() {}"),
            ("b.rs", "use crate::a::f;"),
        ];
        let found = imports(&sources);
        assert_eq!(
            found,
            ["a/mod.rs -> a/other.rs: f", "a/mod.rs -> a/unix.rs: f", "b.rs -> a/other.rs: f", "b.rs -> a/unix.rs: f"]
        );
    }

    #[test]
    fn what_a_macro_defines_belongs_to_its_module() {
        let sources = [("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b::Made;"), ("b.rs", "make!(Made);")];
        assert_eq!(imports(&sources), ["a.rs -> b.rs: Made"]);
    }

    #[test]
    fn other_crates_local_names_and_circular_re_exports_lead_nowhere() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub use std::fmt;"),
            ("a.rs", "use std::io::Read; use serde::Serialize as b; pub use crate::b::N; fn f(c: u8) { c::d(); }"),
            ("b.rs", "pub use crate::a::N; use b::b; mod b { pub fn b() {} }"),
        ];
        let found = imports(&sources);
        assert!(found.iter().all(|import| import.ends_with(": N")), "{found:?}");
    }

    #[test]
    fn what_only_tests_see_is_left_out() {
        let sources = [
            ("lib.rs", "mod a; mod b; #[cfg(all(test, loom))] mod gone;"),
            (
                "a.rs",
                "#[cfg(test)] use crate::b::X;
                 #[cfg(test)] mod tests { use crate::b::X; }
                 #[test] fn f() { crate::b::g() }
                 mod a_tests;
                 impl S { #[cfg(test)] fn h() { crate::b::g() } }
                 #[cfg(any(not(test), loom))] use crate::b::Kept;",
            ),
            ("b.rs", "pub struct X; pub struct Kept; pub fn g() {}"),
        ];
        assert_eq!(imports(&sources), ["a.rs -> b.rs: Kept"]);
    }
}
