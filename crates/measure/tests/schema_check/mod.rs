//! A JSON schema checker for what our published schemas say, and nothing more: a keyword it does not
//! know fails the test, so that no schema says something that nobody checks.
//!
//! It is stricter than the schema in one thing: an object whose fields are listed may have no other.
//! Readers have to accept unknown fields; a writer must not have any that are not described.

use serde_json::Value;

/// Every place where `record` breaks the schema in `file`, in words.
pub(crate) fn problems(file: &str, record: &Value) -> Vec<String> {
    let text = std::fs::read_to_string(file).expect("the schema is there");
    let root: Value = serde_json::from_str(&text).expect("the schema is JSON");
    let mut checker = Checker {
        root: &root,
        problems: Vec::new(),
    };
    checker.check(record, &root, "record");
    checker.problems
}

struct Checker<'a> {
    root: &'a Value,
    problems: Vec<String>,
}

impl Checker<'_> {
    fn check(&mut self, value: &Value, schema: &Value, path: &str) {
        let Some(keywords) = schema.as_object() else {
            return self.fail(path, "its schema is no object");
        };
        for (keyword, argument) in keywords {
            match keyword.as_str() {
                "$schema" | "$defs" | "title" | "description" | "properties" => {}
                "$ref" => self.check_reference(value, argument, path),
                "type" => self.expect(is_of_type(value, argument), path, "type", argument, value),
                "enum" => {
                    let known = argument.as_array().is_some_and(|all| all.contains(value));
                    self.expect(known, path, "enum", argument, value);
                }
                "const" => self.expect(value == argument, path, "const", argument, value),
                "minimum" => self.check_bound(value, argument, path, |value, bound| value >= bound),
                "maximum" => self.check_bound(value, argument, path, |value, bound| value <= bound),
                "pattern" => self.check_pattern(value, argument, path),
                "anyOf" => self.check_choices(value, argument, path),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.check(item, argument, &format!("{path}[]"));
                    }
                }
                "required" => self.check_required(value, argument, path),
                "propertyNames" => {
                    for name in value.as_object().into_iter().flat_map(|it| it.keys()) {
                        let path = format!("{path}.{name} (name)");
                        self.check(&Value::from(name.as_str()), argument, &path);
                    }
                }
                "additionalProperties" => {
                    let fields = value.as_object().into_iter().flatten();
                    for (name, field) in fields {
                        self.check(field, argument, &format!("{path}.{name}"));
                    }
                }
                unknown => self.fail(path, &format!("the checker does not know {unknown}")),
            }
        }
        self.check_fields(value, schema, path);
    }

    fn check_fields(&mut self, value: &Value, schema: &Value, path: &str) {
        let (Some(fields), Some(known)) = (value.as_object(), schema.get("properties")) else {
            return;
        };
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            match known.get(name) {
                Some(schema) => {
                    if schema.get("description").is_none() {
                        self.fail(&path, "has no description");
                    }
                    self.check(field, schema, &path);
                }
                None => self.fail(&path, "is not described"),
            }
        }
    }

    fn check_reference(&mut self, value: &Value, name: &Value, path: &str) {
        let name = name.as_str().unwrap_or_default();
        let target = name
            .strip_prefix("#/$defs/")
            .and_then(|name| self.root.get("$defs")?.get(name));
        match target {
            Some(schema) => self.check(value, schema, path),
            None => self.fail(path, &format!("{name} leads nowhere")),
        }
    }

    fn check_choices(&mut self, value: &Value, choices: &Value, path: &str) {
        let mut reasons = Vec::new();
        for choice in choices.as_array().into_iter().flatten() {
            let mut one = Checker {
                root: self.root,
                problems: Vec::new(),
            };
            one.check(value, choice, path);
            if one.problems.is_empty() {
                return;
            }
            reasons.extend(one.problems);
        }
        self.fail(
            path,
            &format!("none of its choices: {}", reasons.join("; ")),
        );
    }

    fn check_required(&mut self, value: &Value, names: &Value, path: &str) {
        let names = names.as_array().into_iter().flatten();
        for name in names.filter_map(Value::as_str) {
            if value.is_object() && value.get(name).is_none() {
                self.fail(path, &format!("{name} is missing"));
            }
        }
    }

    fn check_bound(
        &mut self,
        value: &Value,
        bound: &Value,
        path: &str,
        holds: impl Fn(f64, f64) -> bool,
    ) {
        if let (Some(value), Some(bound)) = (value.as_f64(), bound.as_f64())
            && !holds(value, bound)
        {
            self.fail(path, &format!("{value} is beyond {bound}"));
        }
    }

    /// Only the one pattern there is: names of measures.
    fn check_pattern(&mut self, value: &Value, pattern: &Value, path: &str) {
        let Some(name) = value.as_str() else { return };
        let quantity = name.split_once('.').map_or(name, |(operation, rest)| {
            let known = ["put", "get", "request"].contains(&operation);
            if known { rest } else { "" }
        });
        let is_word = |word: &str| {
            let ours = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '_');
            !word.is_empty() && word.chars().all(ours)
        };
        let is_custom = |words: &[&str]| {
            matches!(words, ["custom", name, unit, "higher" | "lower"]
                if !name.is_empty() && !unit.is_empty())
        };
        let words: Vec<&str> = quantity.split(':').collect();
        self.expect(
            is_word(quantity) || is_custom(&words),
            path,
            "pattern",
            pattern,
            value,
        );
    }

    fn expect(&mut self, holds: bool, path: &str, keyword: &str, wanted: &Value, found: &Value) {
        if !holds {
            let found: String = found.to_string().chars().take(80).collect();
            self.fail(path, &format!("{found} against {keyword} {wanted}"));
        }
    }

    fn fail(&mut self, path: &str, problem: &str) {
        self.problems.push(format!("{path}: {problem}"));
    }
}

fn is_of_type(value: &Value, wanted: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    match wanted {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        name => name.as_str().is_some_and(is),
    }
}
