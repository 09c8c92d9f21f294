//! `--expect-...`: which responses are right.

use clap::Args;
use millpond_load::{BodyCheck, Checksum, RequestPlan, StatusSet, Validation, Workload};

use super::parse_bytes;

/// The flags of what responses have to be.
#[derive(Args, Debug)]
#[command(next_help_heading = "Responses (a wrong one is an error, counted by what is wrong)")]
pub(super) struct ExpectFlags {
    /// Statuses that are right, single or from-to: 200,404 or 200-299
    /// [default: below 400; of --put, --get and mixes those of the entity API]
    #[arg(long, value_name = "STATUSES", value_parser = parse_statuses)]
    expect_status: Option<StatusSet>,
    /// Length of every body
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    expect_length: Option<u64>,
    /// SHA-256 of every body, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = Checksum::sha256, conflicts_with = "expect_body_crc32")]
    expect_body_sha256: Option<Checksum>,
    /// CRC-32 of every body, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = Checksum::crc32)]
    expect_body_crc32: Option<Checksum>,
    /// Every body is that of the first response, byte for byte
    #[arg(long)]
    expect_same_body: bool,
    /// The {key} of the request occurs in the body of its response
    #[arg(long)]
    expect_echo: bool,
}

impl ExpectFlags {
    /// The first of these flags that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.expect_status.is_some(), "--expect-status"),
            (self.expect_length.is_some(), "--expect-length"),
            (self.expect_body_sha256.is_some(), "--expect-body-sha256"),
            (self.expect_body_crc32.is_some(), "--expect-body-crc32"),
            (self.expect_same_body, "--expect-same-body"),
            (self.expect_echo, "--expect-echo"),
        ];
        let given = given.iter().find(|(is_given, _)| *is_given);
        given.map(|(_, flag)| *flag)
    }

    /// Changes what responses of `plan` are held to.
    pub(super) fn apply(&self, plan: &mut RequestPlan) {
        self.change(&mut plan.validation);
        if let Workload::Mix(mix) = &mut plan.workload {
            for class in &mut mix.classes {
                self.change(&mut class.validation);
            }
        }
    }

    fn change(&self, validation: &mut Validation) {
        if let Some(statuses) = self.expect_status {
            validation.statuses = statuses;
        }
        if self.expect_same_body {
            validation.body = BodyCheck::Exact;
        }
        validation.length = self.expect_length;
        validation.checksum = self.expect_body_sha256.or(self.expect_body_crc32);
        validation.has_echo = self.expect_echo;
    }
}

fn parse_statuses(text: &str) -> Result<StatusSet, String> {
    let wrong =
        || format!("`{text}` is not a list of statuses from 200 to 599: 200,404 or 200-299");
    let code = |text: &str| {
        let code = text
            .parse::<u16>()
            .ok()
            .filter(|code| (200..600).contains(code));
        code.ok_or_else(wrong)
    };
    let mut codes = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) if code(first)? <= code(last)? => {
                codes.extend(code(first)?..=code(last)?);
            }
            Some(_) => return Err(wrong()),
            None => codes.push(code(part)?),
        }
    }
    Ok(StatusSet::of(&codes))
}

#[cfg(test)]
#[path = "tests/expectations.rs"]
mod tests;
