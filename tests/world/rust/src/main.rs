//! Clients of Rust: hawser-world CASE ADDRESS.
//!   clients, restart: redis-rs against hawser-kv, with its cache.
//!   grpc, grpc_restart: tonic against the server of tests/world.
//! The cases of restarts make calls until the standard input ends, while the server is started again.

mod grpc_client;
mod redis_client;

use std::time::Duration;

/// Detects hangs only.
const LIMIT: Duration = Duration::from_secs(120);

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Returns true as soon as the standard input has ended.
fn end_of_input() -> tokio::sync::watch::Receiver<bool> {
    let (ended, receiver) = tokio::sync::watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(true);
    });
    receiver
}

async fn run(case: &str, address: &str) -> Outcome {
    match case {
        "clients" => redis_client::clients(address).await,
        "restart" => redis_client::restart(address).await,
        "grpc" => grpc_client::calls(address).await,
        "grpc_restart" => grpc_client::restart(address).await,
        _ => Err("unknown case".into()),
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let words: Vec<String> = std::env::args().collect();
    tokio::time::timeout(LIMIT, run(&words[1], &words[2])).await??;
    println!("{} passed", words[1]);
    std::process::exit(0); // A thread waits for the standard input.
}
