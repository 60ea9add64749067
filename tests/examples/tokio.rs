//! A tokio program that calls replicas: the calls are awaited on tokio, and run on Bowline's cores.
//!
//! `cargo run -p bowline-tests --example tokio`

mod shouter;

use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let replicas = shouter::replicas()?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio.block_on(async {
        let client = shouter::connect(&replicas).await?;
        let calls = ["tied", "hedged", "plain"].map(|word| {
            let call = client.call(shouter::SHOUT, word).deadline(Duration::from_secs(5));
            tokio::spawn(call.into_future())
        });
        for call in calls {
            let reply = call.await??;
            println!("{} in {:?}", String::from_utf8_lossy(&reply.payload), reply.outcome.latency);
        }
        Ok::<(), Box<dyn Error>>(())
    })
}
