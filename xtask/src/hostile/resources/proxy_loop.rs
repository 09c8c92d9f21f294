//! A proxy that is its own upstream: one request went round until 2,000 descriptors were open.

use super::client::Client;
use super::scene::{Extra, Outcome, Scene};
use crate::bench::server::free_address;
use serde_json::json;

/// Sockets of one request that goes round once, twice over, and those of `/metrics`.
const SOCKETS_MAX: u64 = 16;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let address = free_address()?;
    let upstream = address.to_string();
    let mut stage = scene.stage(&["proxy", "--upstream", &upstream], Some(address))?;
    let mut client = Client::new(address);
    for _ in 0..scene.count(5, 50) {
        let answer = client.get("/")?;
        if answer.status != 508 {
            return Err(format!(
                "a request that goes round is answered {}",
                answer.status
            ));
        }
    }
    client.close();
    let extra = Extra {
        sockets_max: Some(SOCKETS_MAX),
        ..Extra::default()
    };
    let judged = stage.judge(extra, &json!({ "status": 508 }))?;
    stage.stop(super::scene::STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}
