//! Properties that programs may rely on in the types of the three embeddable crates, besides their behavior.

use millpond_http::asynchronous::{BodyReadError, UpstreamError};
use millpond_http::client::ExchangeWriteError;
use millpond_http::proxy::ProxyConfigError;
use millpond_http::router::PatternError;
use millpond_http::{
    AsyncRequest, AsyncShard, BodyError, Client, ClientError, FilesError, HeadTextError,
    LimitsError, ParseError, RequestToken, SendError, ServeConfig, ServeError, Site, WriteError,
};
use millpond_io::connection_pool::AcquireError;
use millpond_io::{
    EpollDriver, Errno, IoError, Mailbox, MailboxSender, ResolveError, Resolver, ShardPools,
    StopHandle, UringDriver, Waker,
};
use millpond_mempool::{
    Arena, Block, BlockPool, Buffer, Handle, Pool, PoolError, PoolMode, Pooled, Slab,
};
use std::error::Error;
use std::marker::PhantomData;

struct Probe<T>(PhantomData<T>);

trait Otherwise {
    const IS_SEND: bool = false;
}

impl<T> Otherwise for Probe<T> {}

impl<T: Send> Probe<T> {
    /// Hides the trait's constant where the bound holds.
    const IS_SEND: bool = true;
}

macro_rules! can_cross_threads {
    ($($type:ty),* $(,)?) => { [$((stringify!($type), <Probe<$type>>::IS_SEND)),*] };
}

/// Goal: types documented as `Send` are, and thread-bound types are not.
#[test]
fn ownership_by_threads_is_in_the_types() {
    let crossing = can_cross_threads![
        Pooled<String>,
        Block,
        Buffer,
        Slab<String>,
        Handle<String>,
        Waker,
        MailboxSender<String>,
        Mailbox<String>,
        StopHandle,
        Resolver,
        RequestToken,
        ServeConfig,
        Site,
        PoolMode,
    ];
    let staying = can_cross_threads![
        Pool<String>,
        BlockPool,
        Arena,
        ShardPools,
        EpollDriver,
        UringDriver,
        Client,
        AsyncShard,
        AsyncRequest,
    ];
    for (name, is_send) in crossing {
        assert!(is_send, "{name} is no longer Send");
    }
    for (name, is_send) in staying {
        assert!(!is_send, "{name} has become Send: the pages say otherwise");
    }
}

/// Goal: every error can be boxed, sent, and handed on by `?`.
#[test]
fn errors_are_errors() {
    fn is_error<E: Error + Send + Sync + 'static>() {}
    is_error::<PoolError>();
    is_error::<millpond_mempool::PoolModeError>();
    is_error::<millpond_mempool::ChecksError>();
    is_error::<IoError>();
    is_error::<Errno>();
    is_error::<ResolveError>();
    is_error::<AcquireError>();
    is_error::<millpond_io::UringUnavailable>();
    is_error::<millpond_io::mailbox::MailboxFull<String>>();
    is_error::<millpond_io::proxy_protocol::ProxyProtocolError>();
    is_error::<ParseError>();
    is_error::<BodyError>();
    is_error::<LimitsError>();
    is_error::<WriteError>();
    is_error::<SendError>();
    is_error::<HeadTextError>();
    is_error::<PatternError>();
    is_error::<ClientError>();
    is_error::<ExchangeWriteError>();
    is_error::<millpond_http::client::ExchangeFailure>();
    is_error::<BodyReadError>();
    is_error::<UpstreamError>();
    is_error::<FilesError>();
    is_error::<ServeError>();
    is_error::<ProxyConfigError>();
    is_error::<millpond_http::proxy::TrustedPeersError>();
    is_error::<millpond_http::proxy::ForwardedFieldsError>();
    is_error::<millpond_http::proxy::BalanceError>();
}
