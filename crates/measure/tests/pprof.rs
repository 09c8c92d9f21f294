//! A profile as others read it: by a protocol buffer library, and by pprof itself.

use std::fs;
use std::io::Read;
use std::process::Command;

use flate2::read::GzDecoder;
use millpond_measure::flamegraph::Stacks;
use millpond_measure::flamegraph::pprof::{Column, Profile};
use prost::Message;

/// The fields of google/pprof's `profile.proto` that are read here.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(crate) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(crate) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "4")]
        pub(crate) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(crate) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(crate) string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub(crate) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(crate) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(crate) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(crate) period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub(crate) comment: Vec<i64>,
    }
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(crate) kind: i64,
        #[prost(int64, tag = "2")]
        pub(crate) unit: i64,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(crate) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(crate) value: Vec<i64>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Location {
        #[prost(uint64, tag = "1")]
        pub(crate) id: u64,
        #[prost(message, repeated, tag = "4")]
        pub(crate) line: Vec<Line>,
    }
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Line {
        #[prost(uint64, tag = "1")]
        pub(crate) function_id: u64,
    }
    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Function {
        #[prost(uint64, tag = "1")]
        pub(crate) id: u64,
        #[prost(int64, tag = "2")]
        pub(crate) name: i64,
    }
}

fn encoded() -> Vec<u8> {
    let parse = |text| Stacks::parse_folded(text).expect("folded");
    let calls = parse("main;handler;malloc 10\nmain;start 1\n");
    let bytes = parse("main;handler;malloc 4096\nmain;start 300\n");
    let column = |name, unit, stacks| Column {
        name,
        unit,
        stacks,
        factor: 1,
    };
    Profile {
        columns: &[
            column("alloc_objects", "count", &calls),
            column("alloc_space", "bytes", &bytes),
        ],
        period: 524_288,
        time_unix_ns: 1_700_000_000_000_000_000,
        duration_ns: 5_000_000_000,
        comment: "millpond profile",
    }
    .encode()
    .expect("encode")
}

/// Goal: an independent library finds every stack with both of its values.
#[test]
fn a_protocol_buffer_library_reads_it() {
    let mut plain = Vec::new();
    GzDecoder::new(&*encoded()).read_to_end(&mut plain).unwrap();
    let profile = proto::Profile::decode(&*plain).unwrap();
    let text = |index: i64| profile.string_table[usize::try_from(index).unwrap()].as_str();
    assert_eq!(text(0), "");
    let types = profile.sample_type.iter();
    let types: Vec<_> = types.map(|it| (text(it.kind), text(it.unit))).collect();
    assert_eq!(
        types,
        [("alloc_objects", "count"), ("alloc_space", "bytes")]
    );
    let name = |location: u64| {
        let location = profile
            .location
            .iter()
            .find(|it| it.id == location)
            .unwrap();
        let function = location.line[0].function_id;
        let function = profile
            .function
            .iter()
            .find(|it| it.id == function)
            .unwrap();
        text(function.name)
    };
    let samples = profile.sample.iter();
    let samples: Vec<(Vec<&str>, &[i64])> = samples
        .map(|it| {
            (
                it.location_id.iter().map(|&at| name(at)).collect(),
                &*it.value,
            )
        })
        .collect();
    let expected: [(Vec<&str>, &[i64]); 2] = [
        (vec!["malloc", "handler", "main"], &[10, 4096]),
        (vec!["start", "main"], &[1, 300]),
    ];
    assert_eq!(samples, expected);
    assert_eq!(
        (profile.period, profile.duration_nanos),
        (524_288, 5_000_000_000)
    );
    assert_eq!(profile.time_nanos, 1_700_000_000_000_000_000);
    assert_eq!(text(profile.period_type.unwrap().unit), "bytes");
    assert_eq!(text(profile.comment[0]), "millpond profile");
}

/// Goal: pprof itself takes the file, where it is installed (Go's own copy is compiled on first use,
/// which takes minutes, so that one is not asked for here).
#[test]
fn pprof_reads_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("alloc.pb.gz");
    fs::write(&file, encoded()).unwrap();
    let mut pprof = Command::new("pprof");
    pprof.args(["-top", "-sample_index=alloc_space"]).arg(&file);
    let Ok(output) = pprof.env("PPROF_TMPDIR", directory.path()).output() else {
        eprintln!("skipped: pprof is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Type: alloc_space"), "{output:?}");
    let line = text.lines().find(|line| line.ends_with(" malloc")).unwrap();
    assert!(line.trim_start().starts_with("4096B 93.18%"), "{line}");
}
