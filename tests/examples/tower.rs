//! The client as the innermost service of a tower stack: calls of at most so many at a time.
//!
//! `cargo run -p bowline-tests --example tower`

mod shouter;

use std::error::Error;
use std::time::Duration;

use bowline_client::io::{RemoteReply, Request};
use tower::{Service, ServiceBuilder, ServiceExt};

fn main() -> Result<(), Box<dyn Error>> {
    let replicas = shouter::replicas()?;
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio.block_on(async {
        let client = shouter::connect(&replicas).await?;
        let mut service = ServiceBuilder::new()
            .concurrency_limit(16)
            .map_request(|word: &str| Request {
                deadline: Some(Duration::from_secs(5)),
                ..Request::new(shouter::SHOUT, word)
            })
            .map_response(|reply: RemoteReply| String::from_utf8_lossy(&reply.payload).into_owned())
            .service(client);
        for word in ["tied", "hedged", "plain"] {
            println!("{}", service.ready().await?.call(word).await?);
        }
        Ok::<(), Box<dyn Error>>(())
    })
}
