//! `margrave devices`: what can compute here.

use clap::Args;
use margrave::engine::backend::cpu::Level;
use margrave_cuda::{CardInfo, WORTHWHILE};
use serde_json::{Value, json};

use crate::cli::Common;
use crate::failure::{Exit, Outcome};
use crate::format;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  margrave devices                          the processor and the cards
  margrave devices --json
  margrave train big.svm --device cuda      train on the first card
  margrave train big.svm --device cuda:1    train on the second";

/// Arguments of `devices`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Devices {}

fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

fn card(info: &CardInfo) -> (String, Value) {
    let capability = format!("{}.{}", info.capability / 10, info.capability % 10);
    let mut text = format!(
        "{}, {:.1} GiB of memory, compute capability {capability}, driver for CUDA {}",
        info.name,
        info.memory as f64 / (1u64 << 30) as f64,
        version(info.driver)
    );
    let problem = info.problem.as_ref().map(ToString::to_string);
    if let Some(problem) = &problem {
        text = format!("{text}; not usable: {problem}");
    }
    let object = json!({
        "device": format!("cuda:{}", info.number),
        "name": info.name,
        "memory_bytes": info.memory,
        "compute_capability": capability,
        "multiprocessors": info.processors,
        "driver_cuda": version(info.driver),
        "usable": problem.is_none(),
        "problem": problem,
    });
    (text, object)
}

impl Devices {
    pub(crate) fn run(self, common: &Common, terminal: &Terminal) -> Outcome {
        let threads = common.threads().count();
        let instructions = format!("{:?}", Level::detect()).to_lowercase();
        let mut rows = vec![("cpu".to_owned(), format!("{threads} threads, {instructions}"))];
        let mut objects =
            vec![json!({ "device": "cpu", "threads": threads, "instructions": instructions, "usable": true })];
        let (auto, problem) = match margrave_cuda::cards() {
            Ok(cards) => {
                for info in &cards {
                    let (text, object) = card(info);
                    rows.push((format!("cuda:{}", info.number), text));
                    objects.push(object);
                }
                match cards.first().and_then(|card| card.problem.as_ref()) {
                    None => ("cuda", None),
                    Some(problem) => ("cpu", Some(problem.to_string())),
                }
            }
            Err(error) => {
                rows.push(("cuda".to_owned(), error.to_string()));
                ("cpu", Some(error.to_string()))
            }
        };
        let what = match auto {
            "cuda" => format!("cuda from {} rows on, else cpu", format::count(WORTHWHILE as u64)),
            _ => "cpu".to_owned(),
        };
        rows.push(("auto".to_owned(), what));
        let rows: Vec<(&str, String)> = rows.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        terminal.say(&terminal.table(&rows))?;
        terminal.object(&json!({ "devices": objects, "auto": auto, "cuda_problem": problem }))?;
        Ok(Exit::Done)
    }
}
