//! From a method and a path to whatever handles them, without a heap call per request.
//!
//! A service asks its router first thing. Patterns are split once, when they are added; a request
//! is matched segment by segment against borrowed bytes.

use crate::method::Method;

/// Parameters a pattern may have.
pub const PARAMETERS_MAX: usize = 8;

/// A pattern that cannot be added; these are mistakes in a program.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// Paths are absolute.
    #[error("the pattern \"{pattern}\" does not begin with a slash: write it as /{pattern}")]
    NotAbsolute {
        /// The value given.
        pattern: String,
    },
    /// More parameters than [`PARAMETERS_MAX`].
    #[error("the pattern \"{pattern}\" has more than {PARAMETERS_MAX} parameters: use fewer")]
    TooManyParameters {
        /// The value given.
        pattern: String,
    },
    /// `{rest...}` takes all that is left, so nothing can follow.
    #[error("the pattern \"{pattern}\" goes on behind {{...}}: put that last")]
    NotLast {
        /// The value given.
        pattern: String,
    },
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Segment {
    Literal(Box<[u8]>),
    Parameter(Box<str>),
    Rest(Box<str>),
}

#[derive(Clone, Debug)]
struct Route<T> {
    method: Method,
    segments: Box<[Segment]>,
    target: T,
}

/// Routes to values of `T`: an enum that the service matches on, or a function.
#[derive(Clone, Debug)]
pub struct Router<T> {
    routes: Vec<Route<T>>,
}

/// Result of routing a path.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the parameters lie on the stack, where a box would be a heap call"
)]
pub enum Routed<'r, 'p, T> {
    /// The first route that matches.
    Found(&'r T, Parameters<'r, 'p>),
    /// The path has routes, but none for this method: respond with 405 and [`Router::allowed`].
    WrongMethod,
    /// Respond with 404.
    NotFound,
}

/// The parts of a path that match a pattern's parameters, as sent.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'r, 'p> {
    pairs: [(&'r str, &'p [u8]); PARAMETERS_MAX],
    count: usize,
}

impl<'p> Parameters<'_, 'p> {
    /// The part that matches the parameter of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'p [u8]> {
        let mut pairs = self.pairs[..self.count].iter();
        pairs.find(|pair| pair.0 == name).map(|pair| pair.1)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T> Default for Router<T> {
    fn default() -> Self {
        Self { routes: Vec::new() }
    }
}

impl<T> Router<T> {
    /// A router without routes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a route: `/users/{id}` takes one segment that is not empty, `/static/{path...}` all
    /// that is left, nothing included. Routes added earlier win.
    pub fn add(&mut self, method: Method, pattern: &str, target: T) -> Result<(), PatternError> {
        let given = || pattern.to_owned();
        let Some(path) = pattern.strip_prefix('/') else {
            return Err(PatternError::NotAbsolute { pattern: given() });
        };
        let segments: Box<[Segment]> = path.split('/').map(Segment::of).collect();
        let parameters = segments
            .iter()
            .filter(|segment| !matches!(segment, Segment::Literal(_)));
        if parameters.count() > PARAMETERS_MAX {
            return Err(PatternError::TooManyParameters { pattern: given() });
        }
        let rest = segments
            .iter()
            .position(|segment| matches!(segment, Segment::Rest(_)));
        if rest.is_some_and(|index| index + 1 < segments.len()) {
            return Err(PatternError::NotLast { pattern: given() });
        }
        self.routes.push(Route {
            method,
            segments,
            target,
        });
        Ok(())
    }

    /// Where a request goes. HEAD goes where GET goes, unless it has a route of its own.
    #[must_use]
    pub fn route<'r, 'p>(&'r self, method: Method, path: &'p [u8]) -> Routed<'r, 'p, T> {
        let mut instead = None;
        let mut is_known = false;
        for route in &self.routes {
            let Some(parameters) = route.matches(path) else {
                continue;
            };
            if route.method == method {
                return Routed::Found(&route.target, parameters);
            }
            is_known = true;
            if method == Method::Head && route.method == Method::Get && instead.is_none() {
                instead = Some(Routed::Found(&route.target, parameters));
            }
        }
        match is_known {
            true => instead.unwrap_or(Routed::WrongMethod),
            false => Routed::NotFound,
        }
    }

    /// The methods that this path has, for `Allow`, as often as it has them.
    pub fn allowed<'r>(&'r self, path: &'r [u8]) -> impl Iterator<Item = Method> + 'r {
        let routes = self.routes.iter();
        routes
            .filter(|route| route.matches(path).is_some())
            .map(|route| route.method)
    }
}

impl Segment {
    fn of(text: &str) -> Self {
        let Some(name) = text
            .strip_prefix('{')
            .and_then(|text| text.strip_suffix('}'))
        else {
            return Self::Literal(text.as_bytes().into());
        };
        match name.strip_suffix("...") {
            Some(name) => Self::Rest(name.into()),
            None => Self::Parameter(name.into()),
        }
    }
}

impl<T> Route<T> {
    fn matches<'r, 'p>(&'r self, path: &'p [u8]) -> Option<Parameters<'r, 'p>> {
        let mut found = Parameters {
            pairs: [("", b""); PARAMETERS_MAX],
            count: 0,
        };
        // The rest of the path, or nothing after its last segment.
        let mut rest = Some(path.strip_prefix(b"/")?);
        for segment in &self.segments {
            if let Segment::Rest(name) = segment {
                found.push(name, rest.unwrap_or_default());
                return Some(found);
            }
            let left = rest?;
            let end = memchr::memchr(b'/', left);
            let part = &left[..end.unwrap_or(left.len())];
            rest = end.map(|end| &left[end + 1..]);
            match segment {
                Segment::Literal(literal) if part == &**literal => {}
                Segment::Parameter(name) if !part.is_empty() => found.push(name, part),
                _ => return None,
            }
        }
        rest.is_none().then_some(found)
    }
}

impl<'r, 'p> Parameters<'r, 'p> {
    fn push(&mut self, name: &'r str, part: &'p [u8]) {
        self.pairs[self.count] = (name, part);
        self.count += 1;
    }
}

#[cfg(test)]
#[path = "tests/router.rs"]
mod tests;
