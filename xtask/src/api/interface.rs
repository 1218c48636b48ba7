//! The public interface of the front: every item that users can name, one line each.
//!
//! Items that the front re-exports are read in the crate that defines them. Impls that the compiler
//! derives from others are left out: blanket ones, and auto traits that hold.

use super::documented::{Documented, elements, variant};
use super::signature::{Names, Signatures};
use crate::Result;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Auto traits whose absence users notice.
const NOTICED: &[&str] = &["Send", "Sync"];

/// Impls that promise nothing of their own.
const IMPLIED: &[&str] = &["Drop", "StructuralPartialEq"];

/// Everything that users can name, and what was noticed on the way.
pub(super) struct Interface {
    /// Lines in the order of the file.
    pub(super) lines: Vec<String>,
    /// Names of items other than modules, by module. The root is the empty name.
    pub(super) names: BTreeMap<String, usize>,
    /// Items that signatures mention and users cannot name.
    pub(super) unnamed: BTreeSet<String>,
}

/// A name in a module.
struct Named {
    path: Vec<String>,
    target: Target,
}

/// Item that a name stands for.
enum Target {
    /// An item of ours: number of the crate, id there.
    Ours(usize, String),
    /// Definition of an item of another project.
    Foreign(String),
}

impl Interface {
    /// Reads the interface of the first crate. The others are those that it re-exports.
    pub(super) fn read(crates: &[Documented]) -> Result<Interface> {
        let Some(front) = crates.first() else {
            return Err("no crate is documented".into());
        };
        let mut walk = Walk { crates, open: Vec::new(), named: Vec::new() };
        walk.module(0, &front.root(), &[])?;
        let named = walk.named;
        let names = Names {
            public: canonical(crates, &named),
            ours: crates.iter().map(|found| found.name.clone()).collect(),
            unnamed: RefCell::default(),
        };
        let mut page = Page { crates, names: &names, lines: Vec::new() };
        let mut counts = BTreeMap::new();
        for one in &named {
            let is_module = page.name(one);
            if let Some((_, module)) = one.path.split_last().filter(|_| !is_module) {
                *counts.entry(module.join("::")).or_insert(0) += 1;
            }
        }
        page.impls();
        let mut lines = page.lines;
        lines.sort();
        lines.dedup();
        let lines = lines.into_iter().map(|(_, line)| line).collect();
        Ok(Interface { lines, names: counts, unnamed: names.unnamed.into_inner() })
    }
}

/// Chooses the path by which the interface calls each item: the shortest one.
fn canonical(crates: &[Documented], named: &[Named]) -> HashMap<String, String> {
    let mut shortest: HashMap<String, &[String]> = HashMap::new();
    for one in named {
        let Target::Ours(krate, id) = &one.target else {
            continue;
        };
        let Some(definition) = crates[*krate].definition(id) else {
            continue;
        };
        let known = shortest.entry(definition).or_insert(&one.path);
        if (one.path.len(), &one.path[..]) < (known.len(), *known) {
            *known = &one.path;
        }
    }
    shortest.into_iter().map(|(definition, path)| (definition, path.join("::"))).collect()
}

/// Finds all names, from the root on.
struct Walk<'a> {
    crates: &'a [Documented],
    /// Modules that the walk is in: one that contains itself is not entered again.
    open: Vec<(usize, String)>,
    named: Vec<Named>,
}

impl Walk<'_> {
    fn module(&mut self, krate: usize, id: &str, path: &[String]) -> Result {
        let here = (krate, id.to_string());
        let Some(module) = self.crates[krate].item(id).filter(|_| !self.open.contains(&here))
        else {
            return Ok(());
        };
        self.open.push(here);
        for id in elements(&module["inner"]["module"]["items"]) {
            self.entry(krate, &id.to_string(), path)?;
        }
        self.open.pop();
        Ok(())
    }

    fn entry(&mut self, krate: usize, id: &str, module: &[String]) -> Result {
        let Some(item) = self.crates[krate].item(id) else {
            return Ok(());
        };
        match variant(&item["inner"]) {
            ("use", import) => self.import(krate, import, module),
            // Methods, which are shown with their types.
            ("impl", _) => Ok(()),
            _ => self.target(
                Target::Ours(krate, id.to_string()),
                &path_in_module(module, &item["name"]),
            ),
        }
    }

    fn import(&mut self, krate: usize, import: &Value, module: &[String]) -> Result {
        let target = self.resolve_import(krate, import)?;
        if import["is_glob"] != true {
            return self.target(target, &path_in_module(module, &import["name"]));
        }
        match target {
            Target::Ours(krate, id) => self.module(krate, &id, module),
            Target::Foreign(source) => {
                let message = format!("`pub use {source}::*` shows names that others choose");
                Err(message.into())
            }
        }
    }

    fn resolve_import(&self, krate: usize, import: &Value) -> Result<Target> {
        let own = &self.crates[krate];
        let source = || import["source"].as_str().unwrap_or_default().to_string();
        if import["id"].is_null() {
            return Ok(Target::Foreign(source()));
        }
        let id = import["id"].to_string();
        if own.item(&id).is_some() {
            return Ok(Target::Ours(krate, id));
        }
        let definition = own.definition(&id).unwrap_or_else(|| format!("item {}", source()));
        for (krate, other) in self.crates.iter().enumerate() {
            if let Some(id) = other.id_of(&definition) {
                return Ok(Target::Ours(krate, id.to_string()));
            }
        }
        Ok(Target::Foreign(definition))
    }

    fn target(&mut self, target: Target, path: &[String]) -> Result {
        if let Target::Ours(krate, id) = &target
            && let Some(item) = self.crates[*krate].item(id)
        {
            match variant(&item["inner"]) {
                ("module", _) => self.module(*krate, id, path)?,
                // A re-export of a re-export.
                ("use", import) => {
                    let inner = self.resolve_import(*krate, import)?;
                    return self.target(inner, path);
                }
                _ => {}
            }
        }
        self.named.push(Named { path: path.to_vec(), target });
        Ok(())
    }
}

fn path_in_module(module: &[String], name: &Value) -> Vec<String> {
    let name = name.as_str().unwrap_or_default().to_string();
    module.iter().cloned().chain([name]).collect()
}

/// Lines of the file, each with what it is sorted by.
struct Page<'a> {
    crates: &'a [Documented],
    names: &'a Names,
    lines: Vec<(Vec<String>, String)>,
}

impl<'a> Page<'a> {
    /// Adds the lines of a name. Returns whether it is a module.
    fn name(&mut self, named: &Named) -> bool {
        let path = named.path.join("::");
        let (krate, id) = match &named.target {
            Target::Ours(krate, id) => (*krate, id),
            Target::Foreign(definition) => {
                let name = self.names.display_name(definition);
                self.lines.push((named.path.clone(), format!("use {path} = {name}")));
                return false;
            }
        };
        let own = &self.crates[krate];
        let Some(item) = own.item(id) else {
            return false;
        };
        let is_module = !item["inner"]["module"].is_null();
        let public = own.definition(id).and_then(|definition| self.names.public.get(&definition));
        match public {
            Some(public) if *public != path => {
                self.lines.push((named.path.clone(), format!("use {path} = {public}")));
            }
            _ => self.item(own, &named.path, item),
        }
        is_module
    }

    fn signatures(&self, own: &'a Documented) -> Signatures<'a> {
        Signatures { documented: own, names: self.names }
    }

    /// Adds the lines of an item and of its parts, methods aside.
    fn item(&mut self, own: &'a Documented, path: &[String], item: &Value) {
        let s = self.signatures(own);
        let name = path.join("::");
        let (kind, inner) = variant(&item["inner"]);
        let generics = |of: &Value| s.parameters(&of["generics"]["params"]);
        let conditions = |of: &Value| s.conditions(&of["generics"]);
        let line = match kind {
            "module" => format!("mod {name}"),
            "struct" | "union" => {
                let rest = if has_private_fields(inner) { " { .. }" } else { "" };
                format!("{kind} {name}{}{}{rest}", generics(inner), conditions(inner))
            }
            "enum" => format!("enum {name}{}{}", generics(inner), conditions(inner)),
            "trait" => {
                let word = if inner["is_unsafe"] == true { "unsafe trait" } else { "trait" };
                let bounds = s.bounds(&inner["bounds"]);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                format!("{word} {name}{}{bounds}{}", generics(inner), conditions(inner))
            }
            "function" => s.function(&name, inner),
            "constant" => format!("const {name}: {}", s.ty(&inner["type"])),
            "static" => {
                let word = if inner["is_mutable"] == true { "static mut" } else { "static" };
                format!("{word} {name}: {}", s.ty(&inner["type"]))
            }
            "type_alias" => {
                let target = s.ty(&inner["type"]);
                format!("type {name}{} = {target}{}", generics(inner), conditions(inner))
            }
            "macro" | "proc_macro" => format!("macro {name}!"),
            _ => format!("{kind} {name}"),
        };
        self.lines.push((path.to_vec(), format!("{}{line}", attributes(item))));
        for key in ["fields", "tuple"] {
            let plain = &inner["kind"]["plain"]["fields"];
            let fields = if key == "tuple" { &inner["kind"]["tuple"] } else { plain };
            self.fields(own, path, fields);
        }
        // Fields of a union.
        self.fields(own, path, &inner["fields"]);
        for id in elements(&inner["variants"]) {
            self.variant(own, path, &id.to_string());
        }
        if kind == "trait" {
            for id in elements(&inner["items"]) {
                self.member(own, path, &id.to_string(), true);
            }
        }
    }

    fn fields(&mut self, own: &'a Documented, path: &[String], ids: &Value) {
        let fields = elements(ids).iter().filter_map(|id| own.item(&id.to_string()));
        for field in fields {
            let path = path_in_module(path, &field["name"]);
            let ty = self.signatures(own).ty(&field["inner"]["struct_field"]);
            let line = format!("{}field {}: {ty}", attributes(field), path.join("::"));
            self.lines.push((path, line));
        }
    }

    fn variant(&mut self, own: &'a Documented, path: &[String], id: &str) {
        let Some(item) = own.item(id) else {
            return;
        };
        let path = path_in_module(path, &item["name"]);
        let s = self.signatures(own);
        let field = |id: &Value| own.item(&id.to_string());
        let ty = |item: &Value| s.ty(&item["inner"]["struct_field"]);
        let parts = match variant(&item["inner"]["variant"]["kind"]) {
            ("tuple", ids) => {
                let types = elements(ids).iter();
                let types = types.map(|id| field(id).map_or_else(|| "_".to_string(), ty));
                format!("({})", types.collect::<Vec<_>>().join(", "))
            }
            ("struct", fields) => {
                let shown = elements(&fields["fields"]).iter().filter_map(field);
                let shown = shown
                    .map(|item| format!("{}: {}", item["name"].as_str().unwrap_or("_"), ty(item)));
                let rest = (fields["has_stripped_fields"] == true).then(|| "..".to_string());
                format!(" {{ {} }}", shown.chain(rest).collect::<Vec<_>>().join(", "))
            }
            _ => String::new(),
        };
        let line = format!("{}variant {}{parts}", attributes(item), path.join("::"));
        self.lines.push((path, line));
    }

    /// Adds the line of an item of a trait or impl.
    fn member(&mut self, own: &'a Documented, path: &[String], id: &str, of_trait: bool) {
        let Some(item) = own.item(id) else {
            return;
        };
        let path = path_in_module(path, &item["name"]);
        let name = path.join("::");
        let s = self.signatures(own);
        let line = match variant(&item["inner"]) {
            ("function", function) => {
                let provided = of_trait && function["has_body"] == true;
                format!("{}{}", s.function(&name, function), if provided { " { .. }" } else { "" })
            }
            ("assoc_const", constant) => {
                let provided = of_trait && !constant["value"].is_null();
                let rest = if provided { " = .." } else { "" };
                format!("const {name}: {}{rest}", s.ty(&constant["type"]))
            }
            ("assoc_type", ty) => {
                let bounds = s.bounds(&ty["bounds"]);
                let bounds = if bounds.is_empty() { bounds } else { format!(": {bounds}") };
                let parameters = s.parameters(&ty["generics"]["params"]);
                format!("type {name}{parameters}{bounds}{}", s.conditions(&ty["generics"]))
            }
            _ => return,
        };
        self.lines.push((path, format!("{}{line}", attributes(item))));
    }

    /// Adds the impls of all types, traits that several impls of one type have in one line.
    fn impls(&mut self) {
        // Implemented traits, by the place of the line and the words around the traits.
        let mut grouped: BTreeMap<(Vec<String>, String, String), BTreeSet<String>> =
            BTreeMap::new();
        for own in self.crates {
            for item in own.items().filter(|item| item["crate_id"] == 0) {
                let found = &item["inner"]["impl"];
                if found.is_null() || !found["blanket_impl"].is_null() {
                    continue;
                }
                let s = self.signatures(own);
                if found["trait"].is_null() {
                    self.methods(own, found);
                    continue;
                }
                let is_negative = found["is_negative"] == true;
                // Names that are looked up for nothing would count as mentioned.
                let Some(place) = self.place(own, found) else {
                    continue;
                };
                let last = found["trait"]["path"].as_str().unwrap_or_default();
                let last = last.rsplit("::").next().unwrap_or_default();
                if IMPLIED.contains(&last)
                    || found["is_synthetic"] == true && !(is_negative && NOTICED.contains(&last))
                {
                    continue;
                }
                let name = s.path(&found["trait"]);
                let parameters = s.parameters(&found["generics"]["params"]);
                let target = s.ty(&found["for"]);
                let conditions = s.conditions(&found["generics"]);
                let (before, after) =
                    (format!("impl{parameters}"), format!("for {target}{conditions}"));
                let name = if is_negative { format!("!{name}") } else { name };
                grouped.entry((place, before, after)).or_default().insert(name);
            }
        }
        for ((mut place, before, after), traits) in grouped {
            // Right after its type, before methods and variants.
            place.push(String::new());
            let traits = Vec::from_iter(traits).join(" + ");
            self.lines.push((place, format!("{before} {traits} {after}")));
        }
    }

    /// Returns the path of the type or, if that is not ours, of the trait of an impl. `None` for an
    /// impl that users cannot see.
    fn place(&self, own: &Documented, found: &Value) -> Option<Vec<String>> {
        let public = |path: &Value| {
            let definition = own.definition(&path["id"].to_string())?;
            let path = self.names.public.get(&definition)?;
            Some(path.split("::").map(str::to_string).collect::<Vec<_>>())
        };
        let is_ours = |path: &Value| {
            let definition = own.definition(&path["id"].to_string());
            definition.is_some_and(|definition| {
                let path = definition.split_once(' ').map_or("", |(_, path)| path);
                let krate = path.split("::").next().unwrap_or_default();
                self.names.ours.iter().any(|ours| ours == krate)
            })
        };
        let mut target = &found["for"];
        while let ("borrowed_ref", inner) = variant(target) {
            target = &inner["type"];
        }
        if let ("resolved_path", path) = variant(target)
            && is_ours(path)
        {
            // Impls of a trait of ours that is not public show nothing.
            return public(path)
                .filter(|_| !is_ours(&found["trait"]) || public(&found["trait"]).is_some());
        }
        if is_ours(&found["trait"]) {
            return public(&found["trait"]);
        }
        // `impl From<Ours> for Theirs`: beside what it is made from.
        let arguments = elements(&found["trait"]["args"]["angle_bracketed"]["args"]);
        arguments.iter().find_map(|argument| {
            let mut argument = &argument["type"];
            while let ("borrowed_ref", inner) = variant(argument) {
                argument = &inner["type"];
            }
            public(&argument["resolved_path"])
        })
    }

    /// Adds the methods of a type.
    fn methods(&mut self, own: &'a Documented, found: &Value) {
        let of = &found["for"]["resolved_path"];
        let definition = own.definition(&of["id"].to_string());
        let Some(path) = definition.and_then(|found| self.names.public.get(&found)) else {
            return;
        };
        let path: Vec<String> = path.split("::").map(str::to_string).collect();
        let before = self.lines.len();
        for id in elements(&found["items"]) {
            self.member(own, &path, &id.to_string(), false);
        }
        // Methods that some of the type's instances have only.
        let s = self.signatures(own);
        let is_restricted = elements(&found["generics"]["params"]).iter().any(|parameter| {
            variant(&parameter["kind"]).1["bounds"].as_array().is_some_and(|all| !all.is_empty())
        }) || !elements(&found["generics"]["where_predicates"]).is_empty()
            || elements(&of["args"]["angle_bracketed"]["args"]).iter().any(|argument| {
                argument["lifetime"].is_null() && argument["type"]["generic"].is_null()
            });
        if is_restricted {
            let parameters = s.parameters(&found["generics"]["params"]);
            let conditions = s.conditions(&found["generics"]);
            let suffix = format!(" in impl{parameters} {}{conditions}", s.ty(&found["for"]));
            for (_, line) in &mut self.lines[before..] {
                line.push_str(&suffix);
            }
        }
    }
}

fn has_private_fields(inner: &Value) -> bool {
    let fields = &inner["kind"];
    fields["plain"]["has_stripped_fields"] == true
        || inner["has_stripped_fields"] == true
        || elements(&fields["tuple"]).iter().any(Value::is_null)
}

/// Formats attributes that are promises, each with a space after it.
fn attributes(item: &Value) -> String {
    let mut shown = String::new();
    if !item["deprecation"].is_null() {
        shown.push_str("#[deprecated] ");
    }
    for (name, _) in elements(&item["attrs"]).iter().map(variant) {
        if ["non_exhaustive", "must_use"].contains(&name) {
            shown.push_str(&format!("#[{name}] "));
        }
    }
    shown
}
