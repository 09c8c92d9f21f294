//! A crate's public items out of rustdoc's JSON, each under every path that leads to it.

use super::Interface;
use serde_json::Value;

/// Traits that the compiler implements by itself, and that others rely on all the same.
const AUTO_TRAITS: [&str; 2] = ["Send", "Sync"];

/// What `derive(PartialEq)` marks a type with; nobody can name it.
const DERIVE_MARK: &str = "StructuralPartialEq";

struct Walk<'a> {
    index: &'a Value,
    found: Interface,
}

/// Every public item with a digest of what it promises.
pub(super) fn of(document: &Value) -> Result<Interface, String> {
    let mut walk = Walk {
        index: &document["index"],
        found: Interface::new(),
    };
    let root = walk.item(&document["root"]);
    let root = root.ok_or("rustdoc's JSON has no root: its format has changed")?;
    let name = root["name"].as_str().unwrap_or_default();
    walk.module(root, name, &mut Vec::new());
    Ok(walk.found)
}

impl<'a> Walk<'a> {
    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(id.to_string().trim_matches('"'))
    }

    fn items(&self, ids: &'a Value) -> impl Iterator<Item = &'a Value> + use<'a> {
        let index = self.index;
        let ids = ids.as_array().into_iter().flatten();
        ids.filter_map(move |id| index.get(id.to_string().trim_matches('"')))
    }

    /// `above` are the modules that we are in, so that one that shows what is above it comes to an end.
    fn module(&mut self, module: &'a Value, path: &str, above: &mut Vec<&'a Value>) {
        let id = &module["id"];
        if above.contains(&id) {
            return;
        }
        above.push(id);
        for item in self.items(&module["inner"]["module"]["items"]) {
            if item["visibility"] == "public" {
                self.public(item, path, None, above);
            }
        }
        above.pop();
    }

    /// An item under the path of the module that shows it, and the name that it has there.
    fn public(
        &mut self,
        item: &'a Value,
        module: &str,
        name: Option<&str>,
        above: &mut Vec<&'a Value>,
    ) {
        let Some((kind, inner)) = item["inner"].as_object().and_then(|it| it.iter().next()) else {
            return;
        };
        let name = name.or(item["name"].as_str()).unwrap_or_default();
        let path = format!("{module}::{name}");
        match kind.as_str() {
            "use" => self.shown(inner, module, above),
            "module" => {
                self.note("mod", &path, &Value::Null);
                self.module(item, &path, above);
            }
            "struct" | "union" => {
                let is_open = inner["kind"]["plain"]["has_stripped_fields"] == false;
                let promises =
                    [&inner["generics"], &is_open.into(), &item["attrs"]].map(Clone::clone);
                self.note(kind, &path, &promises.into_iter().collect());
                let fields = &inner["kind"]["plain"]["fields"];
                for field in self
                    .items(fields)
                    .chain(self.items(&inner["kind"]["tuple"]))
                {
                    if field["visibility"] == "public" {
                        self.member("field", field, &path);
                    }
                }
                self.impls(inner, &path);
            }
            "enum" => {
                let promises = [&inner["generics"], &item["attrs"]].map(Clone::clone);
                self.note(kind, &path, &promises.into_iter().collect());
                for variant in self.items(&inner["variants"]) {
                    self.variant(variant, &path);
                }
                self.impls(inner, &path);
            }
            "trait" => {
                let promises = [&inner["generics"], &inner["bounds"]].map(Clone::clone);
                self.note(kind, &path, &promises.into_iter().collect());
                for member in self.items(&inner["items"]) {
                    self.member("of trait", member, &path);
                }
            }
            // Functions, constants, statics, aliases, macros: all that there is counts.
            _ => self.note(kind, &path, inner),
        }
    }

    /// What a `pub use` shows: an item of this crate under another name, or somebody else's.
    fn shown(&mut self, inner: &'a Value, module: &str, above: &mut Vec<&'a Value>) {
        let Some(target) = self.item(&inner["id"]) else {
            let name = inner["name"].as_str().unwrap_or_default();
            return self.note("use", &format!("{module}::{name}"), &inner["source"]);
        };
        match inner["is_glob"] == true {
            true if target["inner"].get("module").is_some() => self.module(target, module, above),
            // The variants of an enum: they are listed where it is.
            true => {}
            false => self.public(target, module, inner["name"].as_str(), above),
        }
    }

    fn variant(&mut self, variant: &'a Value, path: &str) {
        let (name, inner) = (&variant["name"], &variant["inner"]["variant"]);
        let path = format!("{path}::{}", name.as_str().unwrap_or_default());
        let shape = inner["kind"]
            .as_object()
            .and_then(|kind| kind.keys().next());
        let shape = shape.map_or("plain", String::as_str);
        self.note("variant", &path, &shape.into());
        for fields in [&inner["kind"]["tuple"], &inner["kind"]["struct"]["fields"]] {
            for field in self.items(fields) {
                self.member("field", field, &path);
            }
        }
    }

    fn impls(&mut self, inner: &'a Value, path: &str) {
        for block in self.items(&inner["impls"]) {
            let block = &block["inner"]["impl"];
            if block["blanket_impl"].is_object() {
                continue;
            }
            if block["trait"].is_null() {
                for member in self.items(&block["items"]) {
                    if member["visibility"] == "public" {
                        self.member("of", member, path);
                    }
                }
                continue;
            }
            let name = block["trait"]["path"].as_str().unwrap_or_default();
            let is_told = block["is_synthetic"] == false || AUTO_TRAITS.contains(&name);
            if is_told && block["is_negative"] == false && name != DERIVE_MARK {
                // One type may implement a trait for several others: each has its line.
                let arguments = digest(&block["trait"]["args"]);
                self.note(
                    "impl",
                    &format!("{name}<{arguments}> for {path}"),
                    &Value::Null,
                );
            }
        }
    }

    fn member(&mut self, what: &str, member: &'a Value, path: &str) {
        let name = member["name"].as_str().unwrap_or_default();
        self.note(what, &format!("{path}::{name}"), &member["inner"]);
    }

    fn note(&mut self, kind: &str, path: &str, promises: &Value) {
        let kind = kind.replace('_', " ");
        self.found
            .insert(format!("{kind} {path}"), digest(promises));
    }
}

/// FNV-1a of what was promised; numbers that rustdoc gives to items anew each time left out.
fn digest(value: &Value) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    add(value, &mut hash);
    format!("{:08x}", (hash ^ hash >> 32) as u32)
}

fn add(value: &Value, hash: &mut u64) {
    let mut bytes = |text: &str| {
        for byte in text.bytes().chain([0]) {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "id") {
                add(&Value::from(name.as_str()), hash);
                add(field, hash);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add(item, hash)),
        Value::String(text) => bytes(text),
        other => bytes(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(argument: &str, id: u32) -> Value {
        let function = |name: &str, visibility: &str| {
            let signature =
                json!({"inputs": [["a", {"primitive": argument}]], "output": {"id": id}});
            json!({"name": name, "visibility": visibility, "inner": {"function": {"sig": signature}}})
        };
        json!({"root": 0, "format_version": 1, "index": {
            "0": {"id": 0, "name": "a", "inner": {"module": {"items": [1, 2, 3, 4]}}},
            "1": function("told", "public"),
            "2": function("kept", "crate"),
            "3": {"visibility": "public", "inner": {"use": {"id": 4, "name": "b", "is_glob": false}}},
            "4": {"id": 4, "name": "hidden", "visibility": "crate",
                  "inner": {"module": {"items": [1, 5]}}},
            "5": {"visibility": "public", "inner": {"use": {"id": 0, "name": "up", "is_glob": true}}},
        }})
    }

    /// Goal: public items are there under every name they are shown by, and no others; a loop of
    /// modules ends; another argument is another digest, and another number of rustdoc's is not.
    #[test]
    fn what_is_public_is_found() {
        let first = of(&document("u32", 1)).unwrap();
        let names: Vec<&str> = first.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["function a::b::told", "function a::told", "mod a::b"]
        );
        assert_eq!(first, of(&document("u32", 2)).unwrap());
        let second = of(&document("u64", 1)).unwrap();
        assert_ne!(first["function a::told"], second["function a::told"]);
    }
}
