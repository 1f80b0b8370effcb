//! `--device`: where to compute.

use margrave_cuda::{Chosen, CudaError, DeviceName, WhyNot};

use crate::failure::{Failure, Flags};
use crate::terminal::Terminal;

/// Reads a device's name.
pub(crate) fn name(text: &str) -> Result<DeviceName, String> {
    text.parse().map_err(|error: margrave::Error| match error {
        margrave::Error::Option { allowed, .. } => format!("expected {allowed}"),
        other => other.text(&Flags),
    })
}

/// The device with this name, for data of so many rows. Says why `auto` does not take a card that is there.
pub(crate) fn choose(name: DeviceName, rows: usize, terminal: &Terminal) -> Result<Chosen, Failure> {
    let chosen = margrave_cuda::choose(name, rows).map_err(|error| {
        Failure::with_hint(
            format!("--device {name}: {error}"),
            "'margrave devices' shows what can compute here; --device cpu is the processor",
        )
    })?;
    match &chosen.why_not {
        // Computers without a card are the usual case.
        None | Some(WhyNot::Card(CudaError::NoDriver | CudaError::NoCard) | WhyNot::Small { .. }) => {}
        Some(why) => terminal.note(&format!("--device auto takes the processor: {why}")),
    }
    Ok(chosen)
}

/// Says so if the card was given up on the way.
pub(crate) fn report(chosen: &Chosen, terminal: &Terminal) {
    if let Some(error) = chosen.card.and_then(|card| card.failure()) {
        terminal.note(&format!("the processor took over: {error}"));
    }
}
