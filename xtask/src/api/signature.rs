//! Types and signatures as Rust writes them, with the names by which users call them.

use super::documented::{Documented, elements, strings, variant};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

/// Crates whose items are called by their last names: everyone knows them.
const STANDARD: &[&str] = &["std", "core", "alloc"];

/// Last names that stand for several items of the standard library, and so keep their modules.
const AMBIGUOUS: &[&str] = &["Error", "Result"];

/// Names of items by their definitions.
pub(super) struct Names {
    /// Public path of each item that users can name, by kind and definition path.
    pub(super) public: HashMap<String, String>,
    /// Our crates, by library name.
    pub(super) ours: Vec<String>,
    /// Items of our crates that signatures mention and users cannot name.
    pub(super) unnamed: RefCell<BTreeSet<String>>,
}

impl Names {
    /// Formats the name of an item: the public one of ours, a short one of the standard library.
    pub(super) fn display_name(&self, definition: &str) -> String {
        if let Some(path) = self.public.get(definition) {
            return path.clone();
        }
        let path = definition.split_once(' ').map_or(definition, |(_, path)| path);
        let (krate, rest) = path.split_once("::").unwrap_or((path, ""));
        if self.ours.iter().any(|ours| ours == krate) {
            self.unnamed.borrow_mut().insert(path.to_string());
        }
        if !STANDARD.contains(&krate) {
            return path.to_string();
        }
        let segments: Vec<&str> = rest.split("::").collect();
        match segments[..] {
            [.., "result", "Result"] => "Result".to_string(),
            [.., outer, "error", last] if AMBIGUOUS.contains(&last) => format!("{outer}::{last}"),
            [.., module, last] if AMBIGUOUS.contains(&last) => format!("{module}::{last}"),
            [.., last] => last.to_string(),
            [] => path.to_string(),
        }
    }
}

/// Renders signatures of one crate.
#[derive(Clone, Copy)]
pub(super) struct Signatures<'a> {
    pub(super) documented: &'a Documented,
    pub(super) names: &'a Names,
}

impl Signatures<'_> {
    /// Formats a type.
    pub(super) fn ty(self, ty: &Value) -> String {
        let (kind, inner) = variant(ty);
        match kind {
            "resolved_path" => self.path(inner),
            "generic" | "primitive" => text(inner).to_string(),
            "dyn_trait" => format!("dyn {}", self.dyn_bounds(inner)),
            "impl_trait" => format!("impl {}", self.bounds(inner)),
            "tuple" => match elements(inner) {
                [only] => format!("({},)", self.ty(only)),
                all => format!("({})", self.types(all)),
            },
            "slice" => format!("[{}]", self.ty(inner)),
            "array" => format!("[{}; {}]", self.ty(&inner["type"]), text(&inner["len"])),
            "infer" => "_".to_string(),
            "raw_pointer" => {
                let access = if inner["is_mutable"] == true { "mut" } else { "const" };
                format!("*{access} {}", self.ty(&inner["type"]))
            }
            "borrowed_ref" => format!("{}{}", reference(inner), self.pointee(&inner["type"])),
            "function_pointer" => {
                let sig = &inner["sig"];
                let inputs = elements(&sig["inputs"]).iter().map(|input| self.ty(&input[1]));
                let inputs = inputs.collect::<Vec<_>>().join(", ");
                let higher = self.higher_ranked(&inner["generic_params"]);
                format!("{higher}{}fn({inputs}){}", header(&inner["header"]), self.output(sig))
            }
            "qualified_path" => self.qualified_path(inner),
            // A form that no item of ours has: shown as it is, so that it is seen.
            _ => ty.to_string(),
        }
    }

    /// Puts `dyn A + B` and `impl A + B` into parentheses after `&`.
    fn pointee(self, ty: &Value) -> String {
        let text = self.ty(ty);
        let is_sum = matches!(variant(ty).0, "dyn_trait" | "impl_trait") && text.contains(" + ");
        if is_sum { format!("({text})") } else { text }
    }

    fn types(self, types: &[Value]) -> String {
        types.iter().map(|ty| self.ty(ty)).collect::<Vec<_>>().join(", ")
    }

    /// Formats a path such as `Self::Item` or `<T as Trait>::Item`.
    fn qualified_path(self, path: &Value) -> String {
        let (own, name) = (self.ty(&path["self_type"]), text(&path["name"]));
        let arguments = self.arguments(&path["args"]);
        let of_trait = &path["trait"];
        if of_trait.is_null() || own == "Self" {
            return format!("{own}::{name}{arguments}");
        }
        format!("<{own} as {}>::{name}{arguments}", self.path(of_trait))
    }

    /// Formats an item with its arguments.
    pub(super) fn path(self, path: &Value) -> String {
        let definition = self.documented.definition(&path["id"].to_string());
        let name = match definition {
            Some(definition) => self.names.display_name(&definition),
            None => text(&path["path"]).to_string(),
        };
        format!("{name}{}", self.arguments(&path["args"]))
    }

    fn arguments(self, arguments: &Value) -> String {
        let (kind, inner) = variant(arguments);
        match kind {
            "angle_bracketed" => {
                let own = elements(&inner["args"]).iter().map(|argument| self.argument(argument));
                let constraints =
                    elements(&inner["constraints"]).iter().map(|found| self.constraint(found));
                let all: Vec<String> = own.chain(constraints).collect();
                if all.is_empty() { String::new() } else { format!("<{}>", all.join(", ")) }
            }
            "parenthesized" => {
                let inputs = self.types(elements(&inner["inputs"]));
                format!("({inputs}){}", self.output(inner))
            }
            _ => String::new(),
        }
    }

    fn argument(self, argument: &Value) -> String {
        match variant(argument) {
            ("lifetime", name) => text(name).to_string(),
            ("type", ty) => self.ty(ty),
            ("const", value) => text(&value["expr"]).to_string(),
            _ => "_".to_string(),
        }
    }

    /// Formats `Item = T` or `Item: Bound`.
    fn constraint(self, constraint: &Value) -> String {
        let name = format!("{}{}", text(&constraint["name"]), self.arguments(&constraint["args"]));
        match variant(&constraint["binding"]) {
            ("equality", term) => format!("{name} = {}", self.argument(term)),
            (_, bounds) => format!("{name}: {}", self.bounds(bounds)),
        }
    }

    /// Formats ` -> T`, or nothing.
    fn output(self, of: &Value) -> String {
        match &of["output"] {
            Value::Null => String::new(),
            ty => format!(" -> {}", self.ty(ty)),
        }
    }

    fn dyn_bounds(self, of: &Value) -> String {
        let traits = elements(&of["traits"]).iter().map(|found| {
            let higher = self.higher_ranked(&found["generic_params"]);
            format!("{higher}{}", self.path(&found["trait"]))
        });
        let lifetime = of["lifetime"].as_str().map(str::to_string);
        traits.chain(lifetime).collect::<Vec<_>>().join(" + ")
    }

    /// Formats bounds, such as `A + ?Sized + 'a`.
    pub(super) fn bounds(self, bounds: &Value) -> String {
        let bounds = elements(bounds).iter().map(|bound| match variant(bound) {
            ("trait_bound", bound) => {
                let higher = self.higher_ranked(&bound["generic_params"]);
                let maybe = if bound["modifier"] == "maybe" { "?" } else { "" };
                format!("{higher}{maybe}{}", self.path(&bound["trait"]))
            }
            ("use", names) => {
                let names = elements(names).iter().map(|name| text(variant(name).1));
                format!("use<{}>", names.collect::<Vec<_>>().join(", "))
            }
            (_, lifetime) => text(lifetime).to_string(),
        });
        bounds.collect::<Vec<_>>().join(" + ")
    }

    fn higher_ranked(self, parameters: &Value) -> String {
        match self.parameters(parameters) {
            none if none.is_empty() => none,
            some => format!("for{some} "),
        }
    }

    /// Formats `<'a, T: Bound = Default>`, or nothing.
    pub(super) fn parameters(self, parameters: &Value) -> String {
        let shown = elements(parameters).iter().filter_map(|parameter| self.parameter(parameter));
        let shown: Vec<String> = shown.collect();
        if shown.is_empty() { String::new() } else { format!("<{}>", shown.join(", ")) }
    }

    /// Formats one parameter; `None` for those that `impl Trait` in an argument stands for.
    fn parameter(self, parameter: &Value) -> Option<String> {
        let mut shown = text(&parameter["name"]).to_string();
        let (kind, inner) = variant(&parameter["kind"]);
        match kind {
            "lifetime" => {
                let outlives: Vec<&str> = strings(&inner["outlives"]).collect();
                if !outlives.is_empty() {
                    shown = format!("{shown}: {}", outlives.join(" + "));
                }
            }
            "const" => {
                shown = format!("const {shown}: {}", self.ty(&inner["type"]));
                if let Some(default) = inner["default"].as_str() {
                    shown = format!("{shown} = {default}");
                }
            }
            _ => {
                if inner["is_synthetic"] == true {
                    return None;
                }
                if !elements(&inner["bounds"]).is_empty() {
                    shown = format!("{shown}: {}", self.bounds(&inner["bounds"]));
                }
                if !inner["default"].is_null() {
                    shown = format!("{shown} = {}", self.ty(&inner["default"]));
                }
            }
        }
        Some(shown)
    }

    /// Formats ` where T: Bound`, or nothing.
    pub(super) fn conditions(self, generics: &Value) -> String {
        let conditions = elements(&generics["where_predicates"]).iter().map(|condition| {
            let (kind, inner) = variant(condition);
            match kind {
                "bound_predicate" => {
                    let higher = self.higher_ranked(&inner["generic_params"]);
                    let bounds = self.bounds(&inner["bounds"]);
                    format!("{higher}{}: {bounds}", self.ty(&inner["type"]))
                }
                "lifetime_predicate" => {
                    let outlives: Vec<&str> = strings(&inner["outlives"]).collect();
                    format!("{}: {}", text(&inner["lifetime"]), outlives.join(" + "))
                }
                _ => condition.to_string(),
            }
        });
        let conditions = conditions.collect::<Vec<_>>().join(", ");
        if conditions.is_empty() { conditions } else { format!(" where {conditions}") }
    }

    /// Formats `const unsafe fn path<T>(&self, n: usize) -> T where T: Bound`.
    pub(super) fn function(self, path: &str, function: &Value) -> String {
        let (sig, generics) = (&function["sig"], &function["generics"]);
        let inputs = elements(&sig["inputs"]).iter();
        let inputs = inputs.map(|input| self.input(text(&input[0]), &input[1]));
        format!(
            "{}fn {path}{}({}){}{}",
            header(&function["header"]),
            self.parameters(&generics["params"]),
            inputs.collect::<Vec<_>>().join(", "),
            self.output(sig),
            self.conditions(generics)
        )
    }

    fn input(self, name: &str, ty: &Value) -> String {
        if name != "self" {
            return format!("{name}: {}", self.ty(ty));
        }
        let is_self = |ty: &Value| ty["generic"] == "Self";
        match variant(ty) {
            _ if is_self(ty) => name.to_string(),
            ("borrowed_ref", inner) if is_self(&inner["type"]) => {
                format!("{}{name}", reference(inner))
            }
            _ => format!("{name}: {}", self.ty(ty)),
        }
    }
}

/// Formats the beginning of a reference: `&'a mut `.
fn reference(borrowed: &Value) -> String {
    let lifetime = borrowed["lifetime"].as_str().map(|name| format!("{name} "));
    let access = if borrowed["is_mutable"] == true { "mut " } else { "" };
    format!("&{}{access}", lifetime.unwrap_or_default())
}

fn header(header: &Value) -> String {
    let mut shown = String::new();
    for (key, word) in [("is_const", "const "), ("is_async", "async "), ("is_unsafe", "unsafe ")] {
        if header[key] == true {
            shown.push_str(word);
        }
    }
    match variant(&header["abi"]) {
        ("Rust", _) | ("", _) => {}
        (abi, _) => shown.push_str(&format!("extern \"{abi}\" ")),
    }
    shown
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
