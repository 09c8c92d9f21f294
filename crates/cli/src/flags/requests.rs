//! What is asked of any server: URLs, methods, fields, bodies, templates and keys. What a template means is
//! `millpond_load`'s to say, and `expectations` which answers are right.

use super::url::{Url, basic_of, without_user};
use super::url_list::{UrlLine, read_urls};
use super::{Failure, parse_bytes, parse_count};
use clap::Args;
use millpond_http::Method;
use millpond_load::{
    KeyDistribution, KeySpace, RequestBody, RequestClass, RequestMix, Workload, is_template,
};
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// The flags of what is asked, but for the URLs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct RequestFlags {
    /// More URLs, a line each: `[WEIGHT] [METHOD] URL`, or a path of the server that URL names
    #[arg(long, value_name = "FILE")]
    pub(super) urls: Option<PathBuf>,
    /// A header field `Name: value`; may be given several times. Host takes the place of the URL's
    #[arg(short = 'H', long, value_name = "FIELD", value_parser = parse_header)]
    pub(super) header: Vec<(String, String)>,
    /// Method of the request
    #[arg(short, long, value_name = "METHOD", value_parser = parse_method, default_value = "GET")]
    method: Method,
    /// Body of the request; @FILE reads it from there, @- from the standard input
    #[arg(long, value_name = "TEXT|@FILE")]
    body: Option<String>,
    /// A body of so many bytes that look random, others for each request
    #[arg(long, value_name = "SIZE|MIN..MAX", value_parser = parse_sizes, conflicts_with = "body")]
    body_size: Option<RangeInclusive<usize>>,
    /// The file whose lines {file} stands for. Path, fields and body are templates: {seq} {key}
    /// {rand:a:b} {uuid} {file:PATH}, with {{seq}} for the text itself
    #[arg(long, value_name = "FILE")]
    pub(super) template_file: Option<PathBuf>,
    /// Send braces as they are
    #[arg(long, conflicts_with_all = ["urls", "template_file"])]
    no_templates: bool,
    /// How many keys there are, for {key} and the requests of entity servers
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(super) keys: Option<u64>,
    /// How requests are spread over the keys: uniform, `zipfian[:EXPONENT]`, `latest[:EXPONENT]`,
    /// hotspot:KEYS:REQUESTS (shares), sequential [default: uniform, or sequential where entities are written]
    #[arg(long, value_name = "DISTRIBUTION")]
    pub(super) key_distribution: Option<KeyDistribution>,
    /// What stands before the number of a key
    #[arg(long, value_name = "TEXT", default_value = "k")]
    pub(super) key_prefix: String,
    /// Digits of a key's number [default: 9, or what --keys takes]
    #[arg(long, value_name = "N")]
    pub(super) key_digits: Option<usize>,
}

/// URLs of one server.
pub(super) struct Urls {
    pub(super) first: Url,
    pub(super) lines: Vec<UrlLine>,
}

fn parse_method(text: &str) -> Result<Method, String> {
    match Method::from_token(text.as_bytes()) {
        Method::Extension | Method::Connect => {
            Err("write GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH or TRACE".to_owned())
        }
        method => Ok(method),
    }
}

/// A header field as RFC 9110 allows it, so that no request can be smuggled in a value.
fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as `Name: value`")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{name}` cannot be the name of a header field"));
    }
    let value = value.trim_matches([' ', '\t']);
    if value
        .bytes()
        .any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f)
    {
        return Err(format!("the value of {name} holds a control character"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn is_host((name, _): &&(String, String)) -> bool {
    name.eq_ignore_ascii_case("host")
}

/// `1KiB` or `100..4KiB`, both ends included.
pub(super) fn parse_sizes(text: &str) -> Result<RangeInclusive<usize>, String> {
    let size = |text: &str| {
        let bytes = parse_bytes(text)?;
        // What one block of memory can hold, with room for the head.
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= 1 << 30)
            .ok_or_else(|| format!("{text} is more than 1GiB"))
    };
    let Some((least, most)) = text.split_once("..") else {
        return size(text).map(|size| size..=size);
    };
    let (least, most) = (size(least)?, size(most)?);
    if least > most {
        return Err(format!("{text}: the smaller size comes first"));
    }
    Ok(least..=most)
}

impl RequestFlags {
    /// Asks with this method, and with the file's content as it is for a body.
    pub(super) fn ask_with(&mut self, method: Method, body: Option<&Path>) {
        self.method = method;
        self.no_templates = true;
        self.body = body.map(|file| format!("@{}", file.display()));
    }

    /// The Authorization field for `USER:PASSWORD`, which is not percent-encoded.
    pub(super) fn authorize(&mut self, user: &str) -> Result<(), String> {
        if !user.contains(':') {
            return Err("-A: write USER:PASSWORD".to_owned());
        }
        self.header
            .push(("Authorization".to_owned(), basic_of(user.as_bytes())));
        Ok(())
    }

    /// The first of these flags that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.urls.is_some(), "--urls"),
            (!self.header.is_empty(), "--header"),
            (self.method != Method::Get, "--method"),
            (self.body.is_some(), "--body"),
            (self.body_size.is_some(), "--body-size"),
            (self.template_file.is_some(), "--template-file"),
            (self.no_templates, "--no-templates"),
            (self.keys.is_some(), "--keys"),
            (self.key_distribution.is_some(), "--key-distribution"),
        ];
        let given = given.iter().find(|(is_given, _)| *is_given);
        given.map(|(_, flag)| *flag)
    }

    /// The `urls` as a person named them.
    pub(super) fn shown_url(&self, urls: &[String]) -> String {
        let shown: Vec<String> = urls.iter().map(|url| without_user(url)).collect();
        let mut shown = shown.join(" ");
        if let Some(file) = &self.urls {
            shown = format!("{shown} {}", file.display())
                .trim_start()
                .to_owned();
        }
        shown
    }

    /// Takes all URLs apart, those of --urls too.
    pub(super) fn parse_urls(&self, urls: &[String]) -> Result<Urls, Failure> {
        let mut lines: Vec<UrlLine> = Vec::new();
        for text in urls {
            let url = Url::parse(text).map_err(Failure::usage)?;
            lines.push(UrlLine::of(url, text));
        }
        if let Some(file) = &self.urls {
            // With a list, the URL on the command line says where the list's paths are.
            let base = lines.pop().map(|line| line.url);
            lines.extend(read_urls(file, base.as_ref())?);
        }
        let Some(first) = lines.first().map(|line| line.url.clone()) else {
            return Err(Failure::usage("no URL is given"));
        };
        if let Some(other) = lines
            .iter()
            .find(|line| line.url.authority != first.authority || line.url.is_tls != first.is_tls)
        {
            return Err(Failure::usage(format!(
                "{} and {} are two servers: all URLs of a run share one",
                first.authority, other.url.authority
            )));
        }
        let has_other_user = |line: &UrlLine| line.url.authorization != first.authorization;
        if lines.iter().any(has_other_user) {
            return Err(Failure::usage(
                "all URLs of a run have the same user name and password: give other ones as an Authorization field \
                 in a script",
            ));
        }
        Ok(Urls { first, lines })
    }

    /// Whether requests say that their connection closes behind them. Then it does, whatever the server makes of it.
    pub(super) fn says_close(&self) -> bool {
        let is_connection = |field: &&(String, String)| field.0.eq_ignore_ascii_case("Connection");
        let mut fields = self.header.iter().filter(is_connection);
        fields.any(|(_, value)| {
            let mut options = value.split(',');
            options.any(|option| option.trim().eq_ignore_ascii_case("close"))
        })
    }

    /// The Authorization field of a URL with a user name, unless -H has one.
    pub(super) fn authorization(
        &self,
        urls: &[String],
    ) -> Result<Option<(String, String)>, Failure> {
        let name = "Authorization";
        let is_given = |field: &(String, String)| field.0.eq_ignore_ascii_case(name);
        if self.header.iter().any(is_given) {
            return Ok(None);
        }
        let value = self.parse_urls(urls)?.first.authorization;
        Ok(value.map(|value| (name.to_owned(), value)))
    }

    /// The fields of requests, but for Host, which each has once.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let fields = self.header.iter().filter(|field| !is_host(field));
        fields.cloned().collect()
    }

    /// Whether -H says what Host is.
    pub(super) fn has_host(&self) -> bool {
        self.header.iter().any(|field| is_host(&field))
    }

    /// What Host is to say: the URL's server, or as wrk and ab have it, what -H says.
    pub(super) fn host_field(&self, urls: &Urls) -> Result<String, Failure> {
        let mut given = self.header.iter().filter(is_host);
        match (given.next(), given.next()) {
            (None, _) => Ok(urls.first.host_field.clone()),
            (Some((_, host)), None) if self.no_templates || !is_template(host.as_bytes()) => {
                Ok(host.clone())
            }
            (Some(_), None) => Err(Failure::usage(
                "-H Host is the same in every request: it takes no placeholder",
            )),
            (Some(_), Some(_)) => Err(Failure::usage(
                "a request has one Host field: give -H Host once",
            )),
        }
    }

    /// The requests; `body` is that of [`Self::read_body`].
    pub(super) fn workload(
        &self,
        urls: &Urls,
        seed: u64,
        body: &[u8],
    ) -> Result<Workload, Failure> {
        if let Some(plain) = self.plain_workload(urls, body)? {
            return Ok(plain);
        }
        let classes = urls.lines.iter().map(|line| self.url_class(line, body));
        Ok(Workload::Mix(RequestMix {
            keys: self
                .keys
                .map(|count| self.key_space(count, KeyDistribution::Uniform)),
            value_bytes: self.body_size.clone().unwrap_or(0..=0),
            seed,
            template_file: self.template_file.clone(),
            classes: classes.collect(),
        }))
    }

    /// What stands in the place of the requests that a script makes: `body` is kept for it. Its
    /// fields may be any, those of a workload may not.
    pub(super) fn workload_of_script(
        &self,
        urls: &Urls,
        body: Vec<u8>,
    ) -> Result<Workload, Failure> {
        if urls.lines.len() > 1 {
            return Err(Failure::usage("a script is given one URL"));
        }
        Ok(Workload::Static {
            method: self.method,
            fields: Vec::new(),
            body,
        })
    }

    /// The body that a script finds in its table; absent is not the same as empty.
    pub(super) fn body_for_script(&self, workload: &Workload) -> Option<Vec<u8>> {
        match (&self.body, workload) {
            (Some(_), Workload::Static { body, .. }) => Some(body.clone()),
            _ => None,
        }
    }

    /// The method that a script finds there.
    pub(super) const fn method(&self) -> Method {
        self.method
    }

    /// One request that is always the same, if that is what it is.
    fn plain_workload(&self, urls: &Urls, body: &[u8]) -> Result<Option<Workload>, Failure> {
        let [only] = &urls.lines[..] else {
            return Ok(None);
        };
        let has_templates = is_template(only.url.path.as_bytes())
            || only.url.path.contains('{')
            || is_template(body)
            || self
                .header
                .iter()
                .any(|(_, value)| is_template(value.as_bytes()));
        if self.body_size.is_some() || has_templates && !self.no_templates {
            return Ok(None);
        }
        if self.keys.is_some() {
            return Err(Failure::usage(
                "--keys is for --put, --get, --mix, --ycsb and {key}",
            ));
        }
        Ok(Some(Workload::Static {
            method: only.method.unwrap_or(self.method),
            fields: self.fields(),
            body: body.to_vec(),
        }))
    }

    fn url_class(&self, line: &UrlLine, body: &[u8]) -> RequestClass {
        RequestClass {
            weight: line.weight,
            method: line.method.unwrap_or(self.method),
            fields: self.fields(),
            body: match self.body_size {
                Some(_) => RequestBody::Generated,
                None => RequestBody::Template(body.to_vec()),
            },
            ..RequestClass::get(&line.name, &line.url.path)
        }
    }

    /// `count` keys.
    pub(super) fn key_space(&self, count: u64, distribution: KeyDistribution) -> KeySpace {
        KeySpace {
            count,
            distribution: self.key_distribution.unwrap_or(distribution),
            prefix: self.key_prefix.clone(),
            digits: self.key_digits,
        }
    }

    pub(super) fn read_body(&self) -> Result<Vec<u8>, Failure> {
        let text = self.body.as_deref().unwrap_or_default();
        let failed = |what: &str, error: std::io::Error| {
            Failure::failed(format!("--body {text}: {what} cannot be read: {error}"))
        };
        match text.strip_prefix('@') {
            None => Ok(text.as_bytes().to_vec()),
            Some("-") => {
                let mut body = Vec::new();
                let read = std::io::stdin().lock().read_to_end(&mut body);
                read.map_err(|error| failed("the standard input", error))?;
                Ok(body)
            }
            Some(file) => std::fs::read(file).map_err(|error| failed("the file", error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a header value cannot carry a second request.
    #[test]
    fn headers_are_held_to_their_grammar() {
        let field = ("X-A".to_owned(), "b: c".to_owned());
        assert_eq!(parse_header("X-A: b: c "), Ok(field));
        for text in ["", ":", "a b: c", "a: b\r\nc: d", "a\t: b"] {
            assert!(parse_header(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn sizes_are_one_or_a_range() {
        assert_eq!(parse_sizes("1KiB"), Ok(1_024..=1_024));
        assert_eq!(parse_sizes("0..4KiB"), Ok(0..=4_096));
        for text in ["", "..", "5..1", "1..", "2GiB"] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
    }
}
