//! The requests for any server: URLs, methods, fields, bodies, templates and keys. `millpond_load` defines templates,
//! and `expectations` the right responses.

use std::io::Read;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use millpond_http::Method;
use millpond_io::Address;
use millpond_lab::ServerRequests;
use millpond_load::{
    BodyCheck, KeyDistribution, KeySpace, KeyUse, RequestBody, RequestClass, RequestMix,
    RequestPlan, SCAN_KEYS_MAX, StatusSet, Target, Validation, Workload, is_template,
};

use super::expectations::ExpectFlags;
use super::script::ScriptFlags;
use super::server_address::ServerAddressFlags;
use super::url::{Url, basic_of, without_user};
use super::url::{UrlLine, read_urls};
use super::{Failure, parse_bytes, parse_count};

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
        // The capacity of one block of memory, with room for the head.
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

    /// The fields of requests, except for Host, which each has once.
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

    /// What replaces the requests that a script makes: `body` is kept for it. Its
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

// `--mix` and `--ycsb`: operations on an entity server, in proportion.

/// What a mix is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Read,
    Update,
    Insert,
    Delete,
    Scan,
    ReadModifyWrite,
}

/// Operations with their weights.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mix(Vec<(Operation, u64)>);

/// One of YCSB's core workloads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ycsb {
    pub(super) mix: Mix,
    pub(super) distribution: KeyDistribution,
}

impl Mix {
    /// `read=95,update=5`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("`{part}` is not an operation with its weight, as in read=95");
            let (name, weight) = part.split_once('=').ok_or_else(wrong)?;
            let operation = match name {
                "read" => Operation::Read,
                "update" => Operation::Update,
                "insert" => Operation::Insert,
                "delete" => Operation::Delete,
                "scan" => Operation::Scan,
                "rmw" => Operation::ReadModifyWrite,
                _ => {
                    return Err(format!(
                        "`{name}` is none of read, update, insert, delete, scan and rmw"
                    ));
                }
            };
            let weight: u64 = weight.parse().map_err(|_| wrong())?;
            if parts.iter().any(|(known, _)| *known == operation) {
                return Err(format!("{name} is given twice"));
            }
            // As in YCSB's own files, a weight of 0 leaves the operation out.
            if weight > 0 {
                parts.push((operation, weight));
            }
        }
        if parts.is_empty() {
            return Err("every weight is 0".to_owned());
        }
        Ok(Self(parts))
    }

    /// A class for each operation, two for a read-modify-write. `path` is that of single entities.
    pub(super) fn classes(
        &self,
        path: &str,
        fields: &[(String, String)],
    ) -> Result<Vec<RequestClass>, String> {
        let has_deletes = self
            .0
            .iter()
            .any(|(operation, _)| *operation == Operation::Delete);
        let maker = ClassMaker {
            path,
            fields,
            has_deletes,
        };
        let mut classes = Vec::new();
        for &(operation, weight) in &self.0 {
            match operation {
                Operation::Read => classes.push(maker.read("read", weight)),
                Operation::Update => classes.push(maker.write("update", weight, KeyUse::Drawn)),
                Operation::Insert => classes.push(maker.write("insert", weight, KeyUse::New)),
                Operation::Delete => classes.push(maker.delete(weight)),
                Operation::Scan => classes.push(maker.scan(weight)?),
                Operation::ReadModifyWrite => classes.extend([
                    maker.read("rmw-read", weight),
                    RequestClass {
                        is_second: true,
                        ..maker.write("rmw-update", weight, KeyUse::Drawn)
                    },
                ]),
            }
        }
        Ok(classes)
    }
}

/// Requests of the entity API.
struct ClassMaker<'a> {
    path: &'a str,
    fields: &'a [(String, String)],
    /// A key may be gone.
    has_deletes: bool,
}

impl ClassMaker<'_> {
    fn class(&self, name: &str, weight: u64, method: Method, statuses: &[u16]) -> RequestClass {
        RequestClass {
            weight,
            method,
            fields: self.fields.to_vec(),
            validation: Validation::of(StatusSet::of(statuses), BodyCheck::Ignore),
            ..RequestClass::get(name, &format!("{}?id={{key}}", self.path))
        }
    }

    fn read(&self, name: &str, weight: u64) -> RequestClass {
        let statuses: &[u16] = if self.has_deletes {
            &[200, 404]
        } else {
            &[200]
        };
        let class = self.class(name, weight, Method::Get, statuses);
        RequestClass {
            expects_value: true,
            validation: Validation {
                body: BodyCheck::Exact,
                ..class.validation
            },
            ..class
        }
    }

    fn write(&self, name: &str, weight: u64, key: KeyUse) -> RequestClass {
        RequestClass {
            key,
            body: RequestBody::Value,
            ..self.class(name, weight, Method::Put, &[200, 201, 204])
        }
    }

    fn delete(&self, weight: u64) -> RequestClass {
        self.class("delete", weight, Method::Delete, &[200, 202, 204, 404])
    }

    fn scan(&self, weight: u64) -> Result<RequestClass, String> {
        let path = self.path.strip_suffix("entity").ok_or_else(|| {
            format!(
                "scans are for a path that ends with entity, which {} does not",
                self.path
            )
        })?;
        let target = format!("{path}entities?start={{key}}&end={{scan_end:{SCAN_KEYS_MAX}}}");
        Ok(RequestClass {
            target,
            ..self.class("scan", weight, Method::Get, &[200])
        })
    }
}

impl Ycsb {
    /// `a` to `f`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let zipfian = KeyDistribution::Zipfian { exponent: 0.99 };
        let latest = KeyDistribution::Latest { exponent: 0.99 };
        let (mix, distribution) = match text {
            "a" | "A" => ("read=50,update=50", zipfian),
            "b" | "B" => ("read=95,update=5", zipfian),
            "c" | "C" => ("read=100", zipfian),
            "d" | "D" => ("read=95,insert=5", latest),
            "e" | "E" => ("scan=95,insert=5", zipfian),
            "f" | "F" => ("read=50,rmw=50", zipfian),
            _ => return Err("YCSB's workloads are a, b, c, d, e and f".to_owned()),
        };
        Ok(Self {
            mix: Mix::parse(mix)?,
            distribution,
        })
    }
}

// Requests of entity servers: what `millpond load` asks with --put, --get, --mix and --ycsb.

/// YCSB's own default.
const YCSB_KEYS_DEFAULT: u64 = 1_000;
/// The path of the entity API, for which the server's root stands too.
const ENTITY_PATH: &str = "/v0/entity";

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct EntityRequestFlags {
    /// Write the values of an entity server
    #[arg(long, requires = "keys",
        conflicts_with_all = ["get", "urls", "method", "body", "body_size", "script"])]
    put: bool,
    /// Read back the values that --put wrote, and check them
    #[arg(long, requires = "keys",
        conflicts_with_all = ["urls", "method", "body", "body_size", "script", "expect_same_body"])]
    get: bool,
    /// Operations on an entity server by weight: read=95,update=5; also insert, delete, scan, and rmw
    /// (a read and an update of one key, which count as two requests)
    #[arg(long, value_name = "MIX", value_parser = Mix::parse, requires = "keys",
        conflicts_with_all = ["put", "get", "ycsb", "urls", "method", "body", "body_size", "no_templates", "script",
            "expect_same_body"])]
    mix: Option<Mix>,
    /// One of YCSB's core workloads, after --put has written the keys [default keys: 1000]
    #[arg(long, value_name = "a|b|c|d|e|f", value_parser = Ycsb::parse,
        conflicts_with_all = ["put", "get", "urls", "method", "body", "body_size", "no_templates", "script",
            "expect_same_body"])]
    ycsb: Option<Ycsb>,
    /// Size of a value, or sizes, each as likely
    #[arg(long, value_name = "SIZE|MIN..MAX", value_parser = parse_sizes, default_value = "1KiB")]
    value_size: RangeInclusive<usize>,
}

impl EntityRequestFlags {
    /// Whether requests are those of an entity server.
    pub(super) const fn is_given(&self) -> bool {
        self.put || self.get || self.mix.is_some() || self.ycsb.is_some()
    }

    /// The path of the target, for workloads that have but one.
    pub(super) fn target_path(&self, urls: &Urls) -> String {
        match (self.put || self.get, urls.first.path.as_str()) {
            (true, "/") => ENTITY_PATH.to_owned(),
            (_, path) => path.to_owned(),
        }
    }

    /// The requests.
    pub(super) fn workload(
        &self,
        asked: &RequestFlags,
        urls: &Urls,
        seed: u64,
    ) -> Result<Workload, Failure> {
        if urls.lines.len() > 1 {
            return Err(Failure::usage(
                "--put, --get and mixes take one URL: that of an entity server",
            ));
        }
        let path = match urls.first.path.as_str() {
            "/" => ENTITY_PATH,
            path => path,
        };
        let fields = asked.fields();
        let ycsb = self.ycsb.as_ref();
        let classes = match self.mix.as_ref().or(ycsb.map(|ycsb| &ycsb.mix)) {
            Some(mix) => mix.classes(path, &fields).map_err(Failure::usage)?,
            None => match self.plain_workload(asked, seed) {
                Some(plain) => return Ok(plain),
                None => vec![self.class(path, fields)],
            },
        };
        let distribution = match (ycsb, self.put) {
            (Some(ycsb), _) => ycsb.distribution,
            (None, true) => KeyDistribution::Sequential,
            (None, false) => KeyDistribution::Uniform,
        };
        let keys = asked.keys.or(ycsb.map(|_| YCSB_KEYS_DEFAULT));
        Ok(Workload::Mix(RequestMix {
            keys: keys.map(|count| asked.key_space(count, distribution)),
            value_bytes: self.value_size.clone(),
            seed,
            template_file: asked.template_file.clone(),
            classes,
        }))
    }

    /// The forms without anything that those of before did not have.
    fn plain_workload(&self, asked: &RequestFlags, seed: u64) -> Option<Workload> {
        let is_plain = asked.key_distribution.is_none()
            && asked.key_prefix == "k"
            && asked.key_digits.is_none()
            && asked.fields().is_empty()
            && self.value_size.start() == self.value_size.end();
        let (keys, value_bytes) = (asked.keys.unwrap_or_default(), *self.value_size.start());
        match (is_plain, self.put) {
            (false, _) => None,
            (true, true) => Some(Workload::EntityPut {
                keys,
                value_bytes,
                seed,
            }),
            (true, false) => Some(Workload::EntityGet {
                keys,
                value_bytes,
                seed,
            }),
        }
    }

    fn class(&self, path: &str, fields: Vec<(String, String)>) -> RequestClass {
        let class = RequestClass {
            fields,
            ..RequestClass::get("get", &format!("{path}?id={{key}}"))
        };
        if self.put {
            return RequestClass {
                name: "put".to_owned(),
                method: Method::Put,
                body: RequestBody::Value,
                validation: Validation::of(StatusSet::of(&[201]), BodyCheck::Exact),
                ..class
            };
        }
        RequestClass {
            expects_value: true,
            validation: Validation::of(StatusSet::of(&[200]), BodyCheck::Exact),
            ..class
        }
    }
}

// Requests and their server as `load`, `compare` and `profile` describe them, with the same flags.

/// A handshake that takes longer has failed: as generous as the time that a response may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Draws follow from it: every candidate is asked the same.
const DRAW_SEED: u64 = 1;

/// The flags, of commands that start a server of the user's.
#[derive(Args, Debug)]
pub(super) struct TargetRequestFlags {
    /// Where your server answers; several URLs of it are asked in turn
    #[arg(long, value_name = "URL")]
    pub(super) url: Vec<String>,
    #[command(flatten)]
    asked: RequestFlags,
    #[command(flatten)]
    expect: ExpectFlags,
    #[command(flatten)]
    script: ScriptFlags,
    #[command(flatten)]
    reach: ServerAddressFlags,
}

/// Everything but lengths, rates and numbers of connections.
pub(super) struct Description<'a> {
    pub(super) urls: &'a Urls,
    pub(super) asked: &'a RequestFlags,
    pub(super) expect: &'a ExpectFlags,
    pub(super) reach: &'a ServerAddressFlags,
    pub(super) has_script: bool,
    pub(super) handshake_timeout_ns: u64,
}

impl Description<'_> {
    /// The plan for `workload` of `path`. No name is resolved and no script read yet: the rest is checked first.
    pub(super) fn plan(&self, workload: Workload, path: String) -> Result<RequestPlan, Failure> {
        let nowhere = Address::from(SocketAddr::from(([127, 0, 0, 1], 1)));
        let first = &self.urls.first;
        let target = Target {
            addresses: [nowhere].into(),
            // A script finds the field in its table, and the URL's server beside it.
            host: match self.has_script {
                true => first.host_field.clone(),
                false => self.asked.host_field(self.urls)?,
            },
            path,
        };
        let mut plan = RequestPlan::new(target, workload);
        plan.tls = self.reach.tls(first, self.handshake_timeout_ns)?;
        plan.is_verified = self.reach.is_verified();
        plan.addresses = self.reach.address_use();
        plan.requests_per_connection = self.asked.says_close().then_some(1);
        self.expect.apply(&mut plan);
        Ok(plan)
    }
}

impl TargetRequestFlags {
    /// The first flag that describes requests of a server of the user's, besides --url.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let script = self.script.is_given().then_some("--script");
        let other = self.asked.first_given().or(self.expect.first_given());
        other.or(script).or(self.reach.first_given())
    }

    /// Whether requests have a URL.
    pub(super) fn has_url(&self) -> bool {
        !self.url.is_empty() || self.asked.urls.is_some()
    }

    /// The requests, with `urls` instead of --url.
    pub(super) fn requests(&self, urls: &[String]) -> Result<ServerRequests, Failure> {
        let parsed = self.asked.parse_urls(urls)?;
        let mut asked = self.asked.clone();
        asked.header.extend(self.asked.authorization(urls)?);
        let body = asked.read_body()?;
        let workload = match self.script.is_given() {
            true => asked.workload_of_script(&parsed, body)?,
            false => asked.workload(&parsed, DRAW_SEED, &body)?,
        };
        let script = urls.first().map_or("", String::as_str);
        let script = self.script.config(script, &asked, &workload, &[])?;
        let description = Description {
            urls: &parsed,
            asked: &asked,
            expect: &self.expect,
            reach: &self.reach,
            has_script: script.is_some(),
            handshake_timeout_ns: u64::try_from(HANDSHAKE_TIMEOUT.as_nanos()).unwrap_or(u64::MAX),
        };
        let mut plan = description.plan(workload, parsed.first.path.clone())?;
        plan.script = script;
        plan.target.addresses = self.reach.addresses(&parsed.first)?;
        Ok(ServerRequests {
            text: asked.shown_url(urls),
            plan,
            is_host_of_url: !asked.has_host(),
        })
    }
}

#[cfg(test)]
#[path = "tests/requests.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/mixes.rs"]
mod mixes_tests;
