//! The bytes of each request, from its number alone.
//!
//! `worker` asks for request i and has it appended to a connection's output; `validation` asks what
//! its response must hold. A request that is always the same is encoded once and copied; all others
//! are templates, dealt to classes by their weights. Request i is the same whichever thread sends
//! it, so a run with the same seed asks the same whatever the number of threads.
//!
//! ```text
//! number -> mix (class, ordinal) -> keys (key) -> template (bytes) <- sources (ids, values, lines)
//! ```

pub(crate) mod keys;
pub(crate) mod template;
#[cfg(test)]
#[path = "tests/workload.rs"]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};

use millpond_http::Method;
use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::config::{LoadConfig, Target, Workload};
use crate::error::LoadError;
use crate::request_mix::{CLASSES_MAX, KeySpace, KeyUse, RequestBody, RequestClass, RequestMix};
use crate::request_plan::{Values, key_digits, mix, write_key};

use self::keys::{Choice, Dealer, Share, WEIGHTS_SUM_MAX};
use self::keys::{Draws, KeyDistribution, KeyPicker};
use self::template::{Compiler, Draw, Piece, Place, Template, literal};

/// Requests of a closed loop are gathered in one block up to this size.
const BATCH_BYTES_MAX: usize = 32 << 10;
/// Separates what templates draw from the seed of the values.
const TEMPLATE_DRAWS: u64 = 0x7465_6d70_6c61_7465;

/// A request that was appended: how its response is read, and what it is counted as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) class: u16,
}

/// The requests of a run; shared by its threads.
#[derive(Debug)]
pub(crate) struct Requests {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Fixed(FixedRequest),
    Varied(Box<Varied>),
}

impl Requests {
    pub(crate) fn new(config: &LoadConfig) -> Result<Self, LoadError> {
        let kind = match &config.workload {
            Workload::Static {
                method,
                fields,
                body,
            } => {
                let wire = encode(&config.target, *method, fields, body);
                Kind::Fixed(FixedRequest::new(*method, &wire, config.pipeline))
            }
            Workload::StaticChunked {
                method,
                fields,
                body,
                chunk_bytes,
            } => {
                let wire = chunked_encode(&config.target, *method, fields, body, *chunk_bytes);
                Kind::Fixed(FixedRequest::new(*method, &wire, config.pipeline))
            }
            &Workload::EntityPut {
                keys,
                value_bytes,
                seed,
            } => {
                let distribution = KeyDistribution::Sequential;
                let class = RequestClass {
                    method: Method::Put,
                    body: RequestBody::Value,
                    ..RequestClass::get("put", &format!("{}?id={{key}}", config.target.path))
                };
                Self::entity(config, class, distribution, keys, value_bytes, seed)?
            }
            &Workload::EntityGet {
                keys,
                value_bytes,
                seed,
            } => {
                let class = RequestClass {
                    expects_value: true,
                    ..RequestClass::get("get", &format!("{}?id={{key}}", config.target.path))
                };
                Self::entity(
                    config,
                    class,
                    KeyDistribution::Uniform,
                    keys,
                    value_bytes,
                    seed,
                )?
            }
            Workload::Mix(mix) => Kind::Varied(Varied::new(config, mix)?.into()),
        };
        Ok(Self { kind })
    }

    fn entity(
        config: &LoadConfig,
        class: RequestClass,
        distribution: KeyDistribution,
        keys: u64,
        value_bytes: usize,
        seed: u64,
    ) -> Result<Kind, LoadError> {
        let keys = KeySpace {
            distribution,
            ..KeySpace::uniform(keys)
        };
        let mix = RequestMix {
            keys: Some(keys),
            value_bytes: value_bytes..=value_bytes,
            seed,
            ..RequestMix::of(vec![class])
        };
        Ok(Kind::Varied(Varied::new(config, &mix)?.into()))
    }

    /// Appends request `number`. `ahead`: how many of them may follow before `out` is handed over.
    pub(crate) fn append(
        &self,
        number: u64,
        pool: &BlockPool,
        out: &mut Buffer,
        ahead: usize,
    ) -> Result<Asked, PoolError> {
        match &self.kind {
            Kind::Fixed(request) => request.append(pool, out, ahead),
            Kind::Varied(varied) => varied.append(number, pool, out, ahead),
        }
    }

    /// What is known of the response to request `number` of this class, if that is checked.
    pub(crate) fn expected(&self, number: u64, class: u16) -> Option<Expected<'_>> {
        match &self.kind {
            Kind::Fixed(_) => None,
            Kind::Varied(varied) => varied.expected(number, class),
        }
    }

    /// The one request that all are, if they are.
    pub(crate) fn fixed(&self) -> Option<&FixedRequest> {
        match &self.kind {
            Kind::Fixed(request) => Some(request),
            Kind::Varied(_) => None,
        }
    }
}

fn make_room(
    pool: &BlockPool,
    out: &mut Buffer,
    request_bytes: usize,
    ahead: usize,
) -> Result<(), PoolError> {
    if out.spare_bytes() >= request_bytes {
        return Ok(());
    }
    let batch_bytes = (ahead * request_bytes)
        .min(BATCH_BYTES_MAX)
        .max(request_bytes);
    out.reserve(pool, batch_bytes)
}

/// Requests that differ.
#[derive(Debug)]
struct Varied {
    classes: Box<[Class]>,
    /// `None`: there is one class.
    dealer: Option<Dealer>,
    /// How many blocks of the dealer may be under way at once.
    blocks_under_way: u64,
    inserts_per_block: u64,
    picker: KeyPicker,
    sources: Sources,
    draw_seed: u64,
}

#[derive(Debug)]
struct Class {
    method: Method,
    template: Template,
    key: KeyUse,
    expects_value: bool,
    /// Whether anything checked in the response is known beforehand.
    is_known: bool,
}

impl Varied {
    fn new(config: &LoadConfig, mix: &RequestMix) -> Result<Self, LoadError> {
        check(mix)?;
        let mut compiler = Compiler::new(mix.template_file.clone());
        let (least, most) = (*mix.value_bytes.start(), *mix.value_bytes.end());
        let values = Values::ranging(mix.seed, least, most);
        let one_key = KeySpace::uniform(1);
        let keys = mix.keys.as_ref().unwrap_or(&one_key);
        let mut sources = Sources::new(&keys.prefix, keys.digits, keys.count, values);
        let mut parts = Vec::new();
        for class in &mix.classes {
            parts.push(compile(&mut compiler, config, class)?);
        }
        if compiler.uses_key && mix.keys.is_none() {
            return refuse(
                "keys",
                "{key} needs --keys N: how many keys there are".to_owned(),
            );
        }
        sources.lines = std::mem::take(&mut compiler.lines);
        let classes = parts
            .into_iter()
            .zip(&mix.classes)
            .map(|((head, body), class)| Class {
                method: class.method,
                template: Template::new(head, body, &sources),
                key: class.key,
                expects_value: class.expects_value,
                is_known: class.expects_value || class.validation.has_echo,
            });
        let classes: Box<[Class]> = classes.collect();
        let dealer = (classes.len() > 1).then(|| Dealer::new(&shares(&mix.classes), mix.seed));
        let inserts_per_block = dealer.as_ref().map_or(0, |dealer| {
            let new = (0..)
                .zip(&classes)
                .filter(|(_, class)| class.key == KeyUse::New);
            new.map(|(index, _)| dealer.per_block(index)).sum()
        });
        let under_way = (config.connections * config.pipeline) as u64;
        Ok(Self {
            blocks_under_way: dealer
                .as_ref()
                .map_or(0, |dealer| under_way.div_ceil(dealer.block_requests())),
            inserts_per_block,
            picker: KeyPicker::new(keys.distribution, keys.count, mix.seed),
            draw_seed: mix_seed(mix.seed),
            classes,
            dealer,
            sources,
        })
    }

    fn choose(&self, number: u64) -> Choice {
        match &self.dealer {
            Some(dealer) => dealer.deal(number),
            None => Choice {
                class: 0,
                ordinal: number,
                key_number: number,
                block: 0,
            },
        }
    }

    /// Reads of the newest keys avoid those whose write may still be on its way.
    fn key(&self, class: &Class, choice: &Choice) -> u64 {
        match class.key {
            KeyUse::New => self.picker.count() + choice.ordinal,
            KeyUse::Drawn => {
                let blocks = choice.block.saturating_sub(self.blocks_under_way);
                self.picker
                    .pick(choice.key_number, blocks * self.inserts_per_block)
            }
        }
    }

    fn append(
        &self,
        number: u64,
        pool: &BlockPool,
        out: &mut Buffer,
        ahead: usize,
    ) -> Result<Asked, PoolError> {
        let choice = self.choose(number);
        let class = &self.classes[usize::from(choice.class)];
        make_room(pool, out, class.template.bytes_max(), ahead)?;
        let draw = Draw {
            number,
            key: self.key(class, &choice),
            draws: Draws::new(self.draw_seed, number),
            sources: &self.sources,
        };
        class.template.append(&draw, out);
        Ok(Asked {
            method: class.method,
            class: choice.class,
        })
    }

    fn expected(&self, number: u64, class: u16) -> Option<Expected<'_>> {
        let class = &self.classes[usize::from(class)];
        class.is_known.then(|| Expected {
            sources: &self.sources,
            key: self.key(class, &self.choose(number)),
            has_value: class.expects_value,
        })
    }
}

fn mix_seed(seed: u64) -> u64 {
    mix(seed ^ TEMPLATE_DRAWS)
}

fn shares(classes: &[RequestClass]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for (class, spec) in (0..).zip(classes) {
        match shares.last_mut() {
            Some(before) if spec.is_second => before.second = Some(class),
            _ => shares.push(Share {
                weight: spec.weight,
                class,
                second: None,
            }),
        }
    }
    shares
}

fn refuse<T>(name: &'static str, problem: String) -> Result<T, LoadError> {
    Err(LoadError::Setting { name, problem })
}

/// The checks before anything is compiled.
fn check(mix: &RequestMix) -> Result<(), LoadError> {
    let classes = &mix.classes;
    if classes.is_empty() || classes.len() > CLASSES_MAX {
        return refuse(
            "requests",
            format!(
                "{} kinds of requests: give 1 to {CLASSES_MAX}",
                classes.len()
            ),
        );
    }
    let weights = classes
        .iter()
        .filter(|class| !class.is_second)
        .map(|class| class.weight);
    let sum = weights.clone().fold(0u64, u64::saturating_add);
    if weights.clone().any(|weight| weight == 0) || sum > WEIGHTS_SUM_MAX / 2 {
        return refuse(
            "weights",
            format!(
                "each has to be above 0 and all together up to {}",
                WEIGHTS_SUM_MAX / 2
            ),
        );
    }
    let mut pairs = classes.windows(2);
    if classes[0].is_second || pairs.any(|pair| pair[0].is_second && pair[1].is_second) {
        return refuse(
            "requests",
            "a second request follows a first one".to_owned(),
        );
    }
    let Some(keys) = &mix.keys else { return Ok(()) };
    if keys.count == 0 {
        return refuse("keys", "at least one key is needed".to_owned());
    }
    if keys.prefix.len() > KEY_PREFIX_BYTES_MAX
        || !keys.prefix.bytes().all(|byte| byte.is_ascii_graphic())
    {
        return refuse(
            "key-prefix",
            format!(
                "{:?} is not {KEY_PREFIX_BYTES_MAX} visible ASCII letters at most",
                keys.prefix
            ),
        );
    }
    let highest_digits = keys.count.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
    match keys.digits {
        Some(digits) if digits < highest_digits || digits > KEY_DIGITS_MAX => refuse(
            "key-digits",
            format!(
                "{} keys take {highest_digits} digits; at most {KEY_DIGITS_MAX} are possible",
                keys.count
            ),
        ),
        _ => Ok(()),
    }
}

/// Head and body of a class.
fn compile(
    compiler: &mut Compiler,
    config: &LoadConfig,
    class: &RequestClass,
) -> Result<(Vec<Piece>, Vec<Piece>), LoadError> {
    let setting = |name| move |problem| LoadError::Setting { name, problem };
    let body = match &class.body {
        RequestBody::Template(text) => compiler
            .compile(text, Place::Body)
            .map_err(setting("body"))?,
        RequestBody::Value => {
            compiler.uses_key = true;
            vec![Piece::Value { is_by_key: true }]
        }
        RequestBody::Generated => vec![Piece::Value { is_by_key: false }],
    };
    let mut head = vec![literal(format!("{} ", class.method.as_str()).as_bytes())];
    let target = compiler.compile(class.target.as_bytes(), Place::Target);
    head.extend(target.map_err(setting("path"))?);
    head.push(literal(
        format!(" HTTP/1.1\r\nHost: {}\r\n", config.target.host).as_bytes(),
    ));
    for (name, value) in &class.fields {
        head.push(literal(format!("{name}: ").as_bytes()));
        head.extend(
            compiler
                .compile(value.as_bytes(), Place::Field)
                .map_err(setting("header"))?,
        );
        head.push(literal(b"\r\n"));
    }
    if !body.is_empty() || class.method.announces_empty_body() {
        head.extend([
            literal(b"Content-Length: "),
            Piece::ContentLength,
            literal(b"\r\n"),
        ]);
    }
    head.push(literal(b"\r\n"));
    Ok((head, body))
}

/// The request line and the fields, each with its line end. A generator sends the target it is given, so targets may
/// have more bytes than RFC 3986 allows; none that ends a line (see `LoadConfig::check`).
fn head_lines(target: &Target, method: Method, fields: &[(String, String)]) -> String {
    let (path, host) = (&target.path, &target.host);
    let mut lines = format!("{} {path} HTTP/1.1\r\nHost: {host}\r\n", method.as_str());
    for (name, value) in fields {
        lines.extend([name, ": ", value, "\r\n"]);
    }
    lines
}

/// A request that is always the same.
fn encode(target: &Target, method: Method, fields: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut head = head_lines(target, method, fields);
    if !body.is_empty() || method.announces_empty_body() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

// The lines of a file that requests take in turn.

/// A file and where its lines are. Empty lines are left out, and the end of a line is LF or CRLF.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    text: Vec<u8>,
    spans: Box<[Range<usize>]>,
    longest_bytes: usize,
}

impl Lines {
    /// Reads a file; the error names it.
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read(path)
            .map_err(|error| format!("the file {} cannot be read: {error}", path.display()))?;
        let mut spans = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let bytes = line.strip_suffix(b"\n").unwrap_or(line);
            let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
            if !bytes.is_empty() {
                spans.push(start..start + bytes.len());
            }
            start += line.len();
        }
        let longest_bytes = spans.iter().map(Range::len).max();
        let longest_bytes =
            longest_bytes.ok_or_else(|| format!("the file {} holds no line", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            text,
            spans: spans.into(),
            longest_bytes,
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn longest_bytes(&self) -> usize {
        self.longest_bytes
    }

    /// The line of request `number`.
    fn line(&self, number: u64) -> &[u8] {
        let index = number % self.spans.len() as u64;
        &self.text[self.spans[index as usize].clone()]
    }

    /// Refuses a line that would end the request line or the field it is put into.
    fn check(&self, place: Place) -> Result<(), String> {
        let is_bad = |byte: &u8| match place {
            Place::Target => *byte <= b' ' || *byte >= 0x7f,
            Place::Field => byte.is_ascii_control() && *byte != b'\t',
            Place::Body => false,
        };
        let bad = self
            .spans
            .iter()
            .find(|span| self.text[(*span).clone()].iter().any(is_bad));
        bad.map_or(Ok(()), |span| {
            let line = 1 + self.text[..span.start]
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count();
            let path = self.path.display();
            Err(match place {
                Place::Target => format!(
                    "line {line} of {path} holds a blank or a letter that has to be written as %XX"
                ),
                _ => format!("line {line} of {path} holds a control character"),
            })
        })
    }
}

// A request whose body comes in chunks, as text: made once, before the run.

/// The whole request. `chunk_bytes` is above 0, and `fields` name neither Host nor what frames the body.
fn chunked_encode(
    target: &Target,
    method: Method,
    fields: &[(String, String)],
    body: &[u8],
    chunk_bytes: usize,
) -> Vec<u8> {
    let mut head = head_lines(target, method, fields);
    head.push_str("Transfer-Encoding: chunked\r\n\r\n");
    let mut wire = head.into_bytes();
    for chunk in body.chunks(chunk_bytes) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

// The data of all requests of a run: ids of keys, values, lines of files.

/// Longest text before the digits of a key.
pub(crate) const KEY_PREFIX_BYTES_MAX: usize = 64;
/// Longest id of a key.
pub(crate) const KEY_BYTES_MAX: usize = KEY_PREFIX_BYTES_MAX + KEY_DIGITS_MAX;
/// Digits of the largest number.
pub(crate) const KEY_DIGITS_MAX: usize = 20;

/// Shared by all classes and threads.
#[derive(Debug)]
pub(crate) struct Sources {
    prefix: Box<[u8]>,
    digits: usize,
    /// The first number that does not fit.
    beyond: u64,
    pub(crate) values: Values,
    lines: Vec<Lines>,
}

impl Sources {
    /// Keys are `prefix` and a number of `digits` digits, or as many as `keys` keys need.
    pub(crate) fn new(prefix: &str, digits: Option<usize>, keys: u64, values: Values) -> Self {
        let digits = digits.unwrap_or_else(|| key_digits(keys));
        Self {
            prefix: prefix.as_bytes().into(),
            digits,
            beyond: 10u64.checked_pow(digits as u32).unwrap_or(u64::MAX),
            values,
            lines: Vec::new(),
        }
    }

    /// The expected response about `key`, its value included.
    #[cfg(test)]
    pub(crate) fn expected(&self, key: u64) -> Expected<'_> {
        Expected {
            sources: self,
            key,
            has_value: true,
        }
    }

    /// Length of every id.
    pub(crate) fn key_bytes(&self) -> usize {
        self.prefix.len() + self.digits
    }

    /// `key`, or the last one that the digits have room for.
    pub(crate) fn key_at_most(&self, key: u64) -> u64 {
        key.min(self.beyond - 1)
    }

    /// Writes the id of `key`; numbers begin again when the digits are used up.
    pub(crate) fn write_key<'a>(&self, key: u64, place: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        let (prefix, rest) = place.split_at_mut(self.prefix.len());
        prefix.copy_from_slice(&self.prefix);
        let key = if key < self.beyond {
            key
        } else {
            key % self.beyond
        };
        write_key(key, &mut rest[..self.digits]);
        &place[..self.key_bytes()]
    }
}

/// The expected response to one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    sources: &'a Sources,
    key: u64,
    has_value: bool,
}

impl<'a> Expected<'a> {
    /// The value that its body must be.
    pub(crate) fn value(&self) -> Option<(&'a Values, u64)> {
        self.has_value.then_some((&self.sources.values, self.key))
    }

    /// The id of its key.
    pub(crate) fn key_id<'b>(&self, place: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8] {
        self.sources.write_key(self.key, place)
    }
}

// A request that is the same each time.

/// Bytes that are the same for each request.
#[derive(Debug)]
pub(crate) struct FixedRequest {
    method: Method,
    request_bytes: usize,
    /// The request again and again: as many as a pipeline holds, within [`BATCH_BYTES_MAX`].
    repeated: Box<[u8]>,
}

impl FixedRequest {
    fn new(method: Method, wire: &[u8], pipeline: usize) -> Self {
        let fitting = (BATCH_BYTES_MAX / wire.len().max(1)).max(1);
        Self {
            method,
            request_bytes: wire.len(),
            repeated: wire.repeat(fitting.min(pipeline)).into(),
        }
    }

    pub(crate) fn asked(&self) -> Asked {
        Asked {
            method: self.method,
            class: 0,
        }
    }

    /// Appends it once. `ahead`: how many may follow before `out` is handed over.
    fn append(&self, pool: &BlockPool, out: &mut Buffer, ahead: usize) -> Result<Asked, PoolError> {
        make_room(pool, out, self.request_bytes, ahead)?;
        out.append_within_capacity(&self.repeated[..self.request_bytes]);
        Ok(self.asked())
    }

    /// So many of them.
    #[inline]
    pub(crate) fn batch(&self, count: usize, pool: &BlockPool) -> Result<Buffer, PoolError> {
        let mut left_bytes = count * self.request_bytes;
        let mut batch = Buffer::with_capacity(pool, left_bytes)?;
        while left_bytes > 0 {
            let part_bytes = left_bytes.min(self.repeated.len());
            batch.append_within_capacity(&self.repeated[..part_bytes]);
            left_bytes -= part_bytes;
        }
        Ok(batch)
    }
}

#[cfg(test)]
#[path = "tests/chunked.rs"]
mod chunked_tests;

#[cfg(test)]
#[path = "tests/fixed.rs"]
mod fixed_tests;
