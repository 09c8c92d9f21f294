//! A thread of the run as scripts see it: `thread.addr`, `thread:get`, `thread:set`, `thread:stop`.
//!
//! The main state holds one of these for each thread, and each thread has its own as `wrk.thread`.
//! Absent on purpose: functions crossing over. Values are copied between states, as in wrk.
use super::address::ScriptAddress;
use millpond_io::Address;
use mlua::{Lua, UserData, UserDataFields, UserDataMethods, Value, WeakLua};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Tables within tables deeper than this are taken for a table that contains itself.
const DEPTH_MAX: usize = 64;

/// What a thread's state, the main state and the thread's worker share.
#[derive(Debug)]
pub(super) struct ThreadFacts {
    /// Where the thread's next connections go. Read per connection, not per request.
    address: Mutex<Address>,
    is_running: AtomicBool,
    is_stopped: AtomicBool,
}

impl ThreadFacts {
    pub(super) fn new(address: Address) -> Self {
        Self {
            address: Mutex::new(address),
            is_running: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> Address {
        self.address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_address(&self, address: Address) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub(super) fn set_running(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::Relaxed);
    }

    /// As in wrk, a thread that is not running cannot be stopped, and nothing is said about it.
    fn stop(&self) {
        if self.is_running.load(Ordering::Relaxed) {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// The userdata. It does not keep its thread's state alive: that state may own it.
#[derive(Clone)]
pub(super) struct ThreadHandle {
    pub(super) lua: WeakLua,
    pub(super) facts: Arc<ThreadFacts>,
}

impl ThreadHandle {
    fn state(&self) -> mlua::Result<Lua> {
        let lua = self.lua.try_upgrade();
        lua.ok_or_else(|| mlua::Error::runtime("this thread is gone"))
    }
}

impl UserData for ThreadHandle {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |_, thread| {
            Ok(ScriptAddress(thread.facts.address()))
        });
        fields.add_field_method_set("addr", |_, thread, address: ScriptAddress| {
            thread.facts.set_address(address.0);
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, thread, name: Value| {
            let theirs = thread.state()?;
            let value: Value = theirs.globals().get(copy(&name, &theirs, 0)?)?;
            copy(&value, lua, 0)
        });
        methods.add_method("set", |_, thread, (name, value): (Value, Value)| {
            let theirs = thread.state()?;
            let (name, value) = (copy(&name, &theirs, 0)?, copy(&value, &theirs, 0)?);
            theirs.globals().set(name, value)
        });
        methods.add_method("stop", |_, thread, ()| {
            thread.facts.stop();
            Ok(())
        });
    }
}

/// The same value in another state.
fn copy(value: &Value, to: &Lua, depth: usize) -> mlua::Result<Value> {
    match value {
        Value::Nil => Ok(Value::Nil),
        Value::Boolean(is_true) => Ok(Value::Boolean(*is_true)),
        Value::Integer(number) => Ok(Value::Integer(*number)),
        Value::Number(number) => Ok(Value::Number(*number)),
        Value::String(text) => Ok(Value::String(to.create_string(text.as_bytes())?)),
        Value::Table(_) if depth == DEPTH_MAX => Err(mlua::Error::runtime(format!(
            "cannot transfer a table that is more than {DEPTH_MAX} tables deep"
        ))),
        Value::Table(table) => {
            let copied = to.create_table()?;
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                copied.raw_set(copy(&key, to, depth + 1)?, copy(&value, to, depth + 1)?)?;
            }
            Ok(Value::Table(copied))
        }
        other => Err(mlua::Error::runtime(format!(
            "cannot transfer '{}' to thread",
            other.type_name()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A main state with `t`, which is the other state as a thread.
    fn pair() -> (Lua, Lua, Arc<ThreadFacts>) {
        let (main, other) = (Lua::new(), Lua::new());
        let facts = Arc::new(ThreadFacts::new("127.0.0.1:1".parse().unwrap()));
        let handle = ThreadHandle {
            lua: other.weak(),
            facts: Arc::clone(&facts),
        };
        main.globals().set("t", handle).unwrap();
        (main, other, facts)
    }

    #[test]
    fn plain_values_and_tables_cross_over() {
        let (main, other, _) = pair();
        main.load("t:set('n', 1.5) t:set('s', 'a\\0b') t:set('b', true) t:set('gone', nil)")
            .exec()
            .unwrap();
        main.load("t:set('deep', { 1, { x = 'y', [3] = false } })")
            .exec()
            .unwrap();
        other
            .load(
                "assert(n == 1.5 and s == 'a\\0b' and b == true and gone == nil)
                 assert(deep[1] == 1 and deep[2].x == 'y' and deep[2][3] == false)
                 back = { list = { 7 } }",
            )
            .exec()
            .unwrap();
        main.load("assert(t:get('back').list[1] == 7 and t:get('nothing') == nil)")
            .exec()
            .unwrap();
    }

    #[test]
    fn what_cannot_cross_over_is_named() {
        let (main, _other, _) = pair();
        for (code, part) in [
            ("t:set('f', print)", "cannot transfer 'function' to thread"),
            ("t:get('print')", "cannot transfer 'function' to thread"),
            ("t:set('x', { { f = print } })", "'function'"),
            (
                "local x = {} x.x = x t:set('x', x)",
                "more than 64 tables deep",
            ),
            ("t.addr = 'somewhere'", "wrk.lookup()"),
        ] {
            let error = main.load(code).exec().unwrap_err().to_string();
            assert!(error.contains(part), "{code}: {error}");
        }
    }

    #[test]
    fn addresses_are_given_and_taken() {
        let (main, _other, facts) = pair();
        let address = ScriptAddress("127.0.0.2:80".parse().unwrap());
        main.globals().set("a", address).unwrap();
        main.load("assert(tostring(t.addr) == '127.0.0.1:1') t.addr = a")
            .exec()
            .unwrap();
        assert_eq!(facts.address().to_string(), "127.0.0.2:80");
    }

    #[test]
    fn only_a_running_thread_stops() {
        let (main, _other, facts) = pair();
        main.load("t:stop()").exec().unwrap();
        assert!(!facts.is_stopped());
        facts.set_running(true);
        main.load("t:stop()").exec().unwrap();
        assert!(facts.is_stopped());
    }
}
