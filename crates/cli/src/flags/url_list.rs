//! `--urls FILE`: several URLs of one server, with weights and methods.

use super::Failure;
use super::url::{Url, without_user};
use millpond_http::Method;
use std::path::Path;

/// One URL and how it is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct UrlLine {
    pub(super) url: Url,
    /// As it is reported.
    pub(super) name: String,
    pub(super) weight: u64,
    /// `None`: that of the command line.
    pub(super) method: Option<Method>,
}

impl UrlLine {
    pub(super) fn of(url: Url, text: &str) -> Self {
        Self {
            url,
            name: without_user(text),
            weight: 1,
            method: None,
        }
    }

    /// `[WEIGHT] [METHOD] URL`, the URL whole or a path at `base`.
    fn parse(line: &str, base: Option<&Url>) -> Result<Self, String> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let text = words.pop().unwrap_or_default();
        let url = match base {
            Some(base) if text.starts_with('/') => base.with_path(text)?,
            None if text.starts_with('/') => {
                return Err(format!(
                    "{text} is a path: name its server with a URL besides the list"
                ));
            }
            _ => Url::parse(text)?,
        };
        let mut parsed = Self::of(url, text);
        for word in words {
            if let Ok(weight) = word.parse() {
                parsed.weight = weight;
                continue;
            }
            let method = Method::from_token(word.as_bytes());
            if matches!(method, Method::Extension | Method::Connect) || parsed.method.is_some() {
                return Err(format!(
                    "`{word}` is neither a weight nor a method before a URL"
                ));
            }
            parsed.method = Some(method);
            parsed.name = format!("{word} {}", without_user(text));
        }
        Ok(parsed)
    }
}

/// The URLs of a file; empty lines and those that begin with # are passed over.
pub(super) fn read_urls(file: &Path, base: Option<&Url>) -> Result<Vec<UrlLine>, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::failed(format!("--urls {name}: the file cannot be read: {error}"))
    })?;
    let mut urls = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let number = index + 1;
            let wrong =
                |problem| Failure::usage(format!("--urls {name}, line {number}: {problem}"));
            urls.push(UrlLine::parse(line, base).map_err(wrong)?);
        }
    }
    if urls.is_empty() {
        return Err(Failure::usage(format!("--urls {name} holds no URL")));
    }
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_weights_and_methods() {
        let base = Url::parse("http://a:81/x").unwrap();
        let line = |text: &str| UrlLine::parse(text, Some(&base)).unwrap();
        assert_eq!(line("http://b/c").url.authority, "b:80");
        let path = line("3 POST /c?d=e");
        assert_eq!((path.weight, path.method), (3, Some(Method::Post)));
        assert_eq!(
            (&path.url.authority[..], &path.url.path[..]),
            ("a:81", "/c?d=e")
        );
        assert_eq!(path.name, "POST /c?d=e");
        assert_eq!(line("PUT 7 /c").weight, 7);
        for text in ["x http://b/", "GET POST /c", "/a /b", "ftp://b/", ""] {
            assert!(UrlLine::parse(text, Some(&base)).is_err(), "{text}");
        }
        assert!(UrlLine::parse("/c", None).unwrap_err().contains("besides"));
    }
}
