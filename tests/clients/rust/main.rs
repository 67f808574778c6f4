//! Runs steps of the Rust crates `pulsar` and `schema_registry_converter`, one for each line of standard input.
//!
//! A line is JSON: {"step": "message", "args": {…}}. The answer is one line of JSON: {"ok": value} or
//! {"error": kind, "message": text}. A step that takes longer than 40 seconds is answered as the error "hangs".

mod registry;
mod steps;

use std::io::{BufRead, Write};
use std::time::Duration;

use serde_json::{json, Value};

const LIMIT: Duration = Duration::from_secs(40);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let mut number = 0;
    for line in std::io::stdin().lock().lines() {
        let order: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let step = order["step"].as_str().unwrap().to_string();
        number += 1;
        let topic = format!("persistent://public/default/rust-{step}-{number}");
        let url = arguments[1].clone();
        let http = arguments[2].clone();
        let running = tokio::spawn(async move {
            match step.as_str() {
                "registry" => registry::registry(&http).await,
                _ => steps::run(&step, &url, &topic).await,
            }
        });
        let answer = match tokio::time::timeout(LIMIT, running).await {
            Err(_) => json!({"error": "hangs", "message": "no result after 40 s"}),
            Ok(Err(error)) => json!({"error": "panic", "message": error.to_string()}),
            Ok(Ok(Err(error))) => json!({"error": "error", "message": error.to_string()}),
            Ok(Ok(Ok(value))) => json!({"ok": value}),
        };
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}
