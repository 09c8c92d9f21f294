//! A JSON schema checker for what our published schemas say, and nothing more: an unknown keyword fails the test, so
//! that no part of a schema is unchecked.
//!
//! It is stricter than the schema in one thing: an object whose fields are listed may have no other.
//! Readers have to accept unknown fields; a writer must not have any that are not described.
//!
//! Included by the tests of every crate that writes such a record.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

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

/// The same asked of a checker that is not ours, Python's: the schema is one of its draft, and the
/// record in the file `record` is valid. Without that checker nothing is known, which is said.
pub(crate) fn ask_another(schema: &str, record: &Path) -> Result<(), String> {
    let program = "import json, sys, jsonschema\n\
        schema = json.load(open(sys.argv[1]))\n\
        jsonschema.Draft202012Validator.check_schema(schema)\n\
        jsonschema.Draft202012Validator(schema).validate(json.load(open(sys.argv[2])))\n";
    let python = |program: &str| {
        Command::new("python3")
            .args(["-c", program, schema])
            .arg(record)
            .output()
    };
    if !python("import jsonschema").is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: Python's jsonschema is not installed");
        return Ok(());
    }
    match python(program) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
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
                // `check_fields` has the last three.
                "$schema"
                | "$defs"
                | "title"
                | "description"
                | "properties"
                | "patternProperties"
                | "additionalProperties" => {}
                "$ref" => self.check_reference(value, argument, path),
                "type" => self.expect(is_of_type(value, argument), path, "type", argument, value),
                "enum" => {
                    let known = argument.as_array().is_some_and(|all| all.contains(value));
                    self.expect(known, path, "enum", argument, value);
                }
                "const" => self.expect(value == argument, path, "const", argument, value),
                "minimum" => self.check_bound(value, argument, path, |value, bound| value >= bound),
                "exclusiveMinimum" => {
                    self.check_bound(value, argument, path, |value, bound| value > bound);
                }
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
                unknown => self.fail(path, &format!("the checker does not know {unknown}")),
            }
        }
        self.check_fields(value, schema, path);
    }

    fn check_fields(&mut self, value: &Value, schema: &Value, path: &str) {
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let listed = schema.get("properties");
        let others = schema.get("additionalProperties");
        let Some(fields) = value.as_object() else {
            return;
        };
        if listed.is_none() && patterns.is_none() && others.is_none() {
            return;
        }
        if listed.is_some() && schema.get("required").is_none() {
            self.fail(
                path,
                "its schema does not say which fields are always there",
            );
        }
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            let mut matching = patterns.into_iter().flatten();
            let matching = matching.find(|(pattern, _)| matches(name, pattern) == Some(true));
            match (listed.and_then(|known| known.get(name)), matching) {
                (Some(schema), _) => {
                    if schema.get("description").is_none() {
                        self.fail(&path, "has no description");
                    }
                    self.check(field, schema, &path);
                }
                (None, Some((_, schema))) => self.check(field, schema, &path),
                (None, None) => match others {
                    Some(schema) if schema.is_object() => self.check(field, schema, &path),
                    _ => self.fail(&path, "is not described"),
                },
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

    fn check_pattern(&mut self, value: &Value, pattern: &Value, path: &str) {
        let (Some(text), Some(wanted)) = (value.as_str(), pattern.as_str()) else {
            return;
        };
        match matches(text, wanted) {
            Some(holds) => self.expect(holds, path, "pattern", pattern, value),
            None => self.fail(
                path,
                &format!("the checker does not know the pattern {wanted}"),
            ),
        }
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

/// The patterns there are, each by hand; `None`: another one.
fn matches(text: &str, pattern: &str) -> Option<bool> {
    match pattern {
        MEASURE => Some(is_measure(text)),
        "^HISTFAAA" => Some(text.starts_with("HISTFAAA")),
        "^[1-9][0-9]{2}$" => {
            let digits = text.as_bytes();
            let is_number = digits.iter().all(u8::is_ascii_digit);
            Some(digits.len() == 3 && is_number && digits[0] != b'0')
        }
        _ => None,
    }
}

const MEASURE: &str = "^((put|get|request)\\.)?([a-z0-9_]+|custom:[^:.]+:[^:.]+:(higher|lower))$";

/// The name of a measure.
fn is_measure(name: &str) -> bool {
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
    is_word(quantity) || is_custom(&words)
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
