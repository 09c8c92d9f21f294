//! One Lua state: wrk's table in it, the script run in it, and the ways to call the script.
//!
//! A script is a program that its user runs, with `ffi` and `debug` as under wrk. Also absent: a
//! limit on how long a call takes. LuaJIT's compiled loops run no hook, so a limit would hold only
//! for some loops; instead, `run` goes on without a thread that does not return.
#![allow(unsafe_code)]
use super::{ScriptAddress, look_up};
use crate::config::LoadConfig;
use crate::request_plan::mix;
use crate::script::ScriptConfig;
use mlua::{Function, IntoLuaMulti, Lua, LuaOptions, LuaString, StdLib, Table, Value, Variadic};
use std::time::{SystemTime, UNIX_EPOCH};

const PRELUDE: &str = include_str!("prelude.lua");

/// A state and the functions of its prelude.
#[derive(Debug)]
pub(super) struct ScriptState {
    pub(super) lua: Lua,
    setup: Function,
    init: Function,
    request: Function,
    delay: Function,
    fields: Function,
    response: Function,
    done: Function,
    defines: Function,
    flush: Function,
}

/// An outcome, or what a script did wrong in one line.
pub(super) type Scripted<T> = Result<T, String>;

impl ScriptState {
    /// A state that has run the script's file. `place` counts the states, from 0 for the main one.
    pub(super) fn new(config: &ScriptConfig, load: &LoadConfig, place: u64) -> Scripted<Self> {
        // SAFETY: what makes a state unsafe to have is code that runs in it and uses `ffi` or
        // `debug` to break Lua's own rules. The code here is the prelude, which uses neither, and
        // the file that the user of this program names as the program to run.
        let lua = unsafe { Lua::unsafe_new_with(StdLib::ALL, LuaOptions::new()) };
        let state = Self::with_prelude(lua, config, load).map_err(|error| sentence(&error))?;
        state.run(config, place).map_err(|error| sentence(&error))?;
        Ok(state)
    }

    fn with_prelude(lua: Lua, config: &ScriptConfig, load: &LoadConfig) -> mlua::Result<Self> {
        let facts = host_facts(&lua, config, load)?;
        let ways: Table = lua.load(PRELUDE).set_name("=wrk").call(facts)?;
        Ok(Self {
            setup: ways.get("setup")?,
            init: ways.get("init")?,
            request: ways.get("request")?,
            delay: ways.get("delay")?,
            fields: ways.get("fields")?,
            response: ways.get("response")?,
            done: ways.get("done")?,
            defines: ways.get("defines")?,
            flush: ways.get("flush")?,
            lua,
        })
    }

    fn run(&self, config: &ScriptConfig, place: u64) -> mlua::Result<()> {
        let source = &config.source;
        if let Some(seed) = config.seed {
            let math: Table = self.lua.globals().get("math")?;
            let seed = (mix(seed.wrapping_add(mix(place))) >> 11) as f64;
            math.get::<Function>("randomseed")?.call::<()>(seed)?;
        }
        // A first line like `#!/usr/bin/env luajit` is no Lua; its end stays, for the line numbers.
        let code_start = match source.first() {
            Some(b'#') => source.iter().position(|&byte| byte == b'\n'),
            _ => Some(0),
        };
        let code = &source[code_start.unwrap_or(source.len())..];
        let name = format!("@{}", config.file.display());
        self.lua.load(code).set_name(name).exec()
    }

    /// `wrk.thread`, which only the states of threads have.
    pub(super) fn set_thread(&self, thread: super::runner::ThreadHandle) -> Scripted<()> {
        let set = || {
            let wrk: Table = self.lua.globals().get("wrk")?;
            wrk.set("thread", thread)
        };
        set().map_err(|error: mlua::Error| sentence(&error))
    }

    pub(super) fn setup(&self, thread: super::runner::ThreadHandle) -> Scripted<()> {
        call(&self.setup, "setup", thread)
    }

    /// `init(args)`: the URL at 0, the words after `--` from 1.
    pub(super) fn init(&self, config: &ScriptConfig) -> Scripted<()> {
        let args = || {
            let args = self.lua.create_sequence_from(config.args.iter().cloned())?;
            args.set(0, config.url.as_str())?;
            Ok(args)
        };
        let args = args().map_err(|error: mlua::Error| sentence(&error))?;
        call(&self.init, "init", args)
    }

    /// The result of `request()`; `None`: the same string as the last time.
    pub(super) fn request(&self) -> Scripted<Option<LuaString>> {
        match call(&self.request, "request", ())? {
            Value::String(text) => Ok(Some(text)),
            _ => Ok(None),
        }
    }

    pub(super) fn delay_ms(&self) -> Scripted<f64> {
        call(&self.delay, "delay", ())
    }

    /// Shows the fields that the next responses have, names and values in turn.
    pub(super) fn show_fields<'f>(
        &self,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])>,
    ) -> Scripted<()> {
        let words = fields.flat_map(|(name, value)| [name, value]);
        let words = words.map(|word| self.lua.create_string(word));
        let words: mlua::Result<Variadic<LuaString>> = words.collect();
        let words = words.map_err(|error| sentence(&error))?;
        call(&self.fields, "response", words)
    }

    /// Passes a response, whose fields were passed if `has_fields`. `None`: passed. Otherwise how
    /// many of status, fields and body it takes.
    pub(super) fn response(
        &self,
        status: u16,
        has_fields: bool,
        body: Option<&[u8]>,
    ) -> Scripted<Option<u8>> {
        let body = body.map(|body| self.lua.create_string(body)).transpose();
        let body = body.map_err(|error| sentence(&error))?;
        let wanted: u8 = call(&self.response, "response", (status, has_fields, body))?;
        Ok((wanted > 0).then_some(wanted))
    }

    pub(super) fn done(&self, figures: impl IntoLuaMulti) -> Scripted<()> {
        call(&self.done, "done", figures)
    }

    /// Whether a global of this name is a function.
    pub(super) fn defines(&self, name: &str) -> bool {
        self.defines.call(name).unwrap_or_default()
    }

    /// Writes out what the script has printed, so that it stands before what is printed next.
    pub(super) fn flush(&self) {
        // A closed reader is noticed by the program's own next output.
        let _ = self.flush.call::<()>(());
    }
}

fn call<T: mlua::FromLuaMulti>(
    function: &Function,
    name: &str,
    args: impl IntoLuaMulti,
) -> Scripted<T> {
    function
        .call(args)
        .map_err(|error| format!("in {name}(): {}", sentence(&error)))
}

/// The error in one line, without the stack below it.
pub(super) fn sentence(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::CallbackError { cause, .. } => return sentence(cause),
        mlua::Error::RuntimeError(message) => message.clone(),
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// The prelude's argument: the fields of `wrk`, and what only the host can do.
fn host_facts(lua: &Lua, config: &ScriptConfig, load: &LoadConfig) -> mlua::Result<Table> {
    let target = &load.target;
    let (host, port) = host_and_port(&target.host);
    let facts = lua.create_table()?;
    let scheme = if load.tls.is_some() { "https" } else { "http" };
    facts.set("scheme", scheme)?;
    facts.set("host", host)?;
    facts.set("port", port)?;
    facts.set("method", config.method.as_str())?;
    facts.set("path", target.path.as_str())?;
    let fields = config.fields.iter().cloned();
    facts.set("fields", lua.create_table_from(fields)?)?;
    let body = config.body.as_ref();
    facts.set(
        "body",
        body.map(|body| lua.create_string(body)).transpose()?,
    )?;
    let addresses = target.addresses.iter().cloned().map(ScriptAddress);
    facts.set("addrs", lua.create_sequence_from(addresses)?)?;
    let look_up_words = |lua: &Lua, (host, service): (String, String)| {
        let found = look_up(&host, &service).map_err(mlua::Error::runtime)?;
        lua.create_sequence_from(found)
    };
    facts.set("lookup", lua.create_function(look_up_words)?)?;
    let connect = |_: &Lua, address: ScriptAddress| Ok(address.accepts_connections());
    facts.set("connect", lua.create_function(connect)?)?;
    let time_us = |_: &Lua, ()| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(since.map_or(0.0, |time| time.as_micros() as f64))
    };
    facts.set("time_us", lua.create_function(time_us)?)?;
    Ok(facts)
}

/// `host:port`, `host`, `[v6]:port`, `[v6]`: as a URL has them, the brackets taken off.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    if let Some(inner) = authority.strip_prefix('[')
        && let Some((host, rest)) = inner.split_once(']')
    {
        return (host, rest.strip_prefix(':').filter(|port| !port.is_empty()));
    }
    match authority.split_once(':') {
        Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
        None => (authority, None),
    }
}

#[cfg(test)]
#[path = "tests/state.rs"]
mod tests;
