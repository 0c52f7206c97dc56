//! `ovnkube ovsdb transact`.

use std::io::Read as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use ovsdb::client::CallError;
use serde_json::Value;

use super::Misuse;
use super::connect::Access;
use crate::cli::Transact;

pub(super) async fn run(transact: &Transact) -> anyhow::Result<()> {
    let operations = operations(&read(&transact.operations)?)?;
    let access = Access::new(&transact.server, Duration::from_secs(transact.timeout.into()))?;
    let client = access.open(&transact.database, Vec::new()).await?;
    let results = client.transact_raw(&operations, transact.dry_run).await.map_err(|error| {
        let hint = match &error {
            CallError::Refused(_) => "nothing was changed; operations are counted from 0",
            CallError::Lost { .. } => "check whether it was executed before retrying",
            _ => "nothing was changed",
        };
        anyhow!("{error}; hint: {hint}")
    })?;
    console::print_json(&results)?;
    Ok(())
}

/// The argument itself, stdin, or a file.
fn read(argument: &str) -> anyhow::Result<String> {
    if argument == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(text);
    }
    match argument.strip_prefix('@') {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|error| Misuse(format!("cannot read {path}: {error}; hint: @FILE reads a file")).into()),
        None => Ok(argument.to_owned()),
    }
}

fn operations(text: &str) -> Result<Vec<Value>, Misuse> {
    let hint = r#"write [{"op": "select", "table": "T", "where": []}, …]"#;
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Misuse(format!("OPERATIONS are not JSON: {error}; hint: {hint}")))?;
    let Value::Array(operations) = value else {
        return Err(Misuse(format!("OPERATIONS are not a JSON array; hint: {hint}")));
    };
    match operations.iter().position(|operation| !operation.is_object()) {
        Some(0) if operations[0].is_string() => {
            Err(Misuse("operation 0 is a string; hint: the database is a separate argument".into()))
        }
        Some(index) => Err(Misuse(format!("operation {index} is not a JSON object; hint: {hint}"))),
        None => Ok(operations),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_an_array_of_objects() {
        assert_eq!(operations(r#"[{"op": "abort"}]"#).unwrap().len(), 1);
        for (text, says) in [
            ("", "not JSON"),
            ("{}", "not a JSON array"),
            (r#"["db", {"op": "abort"}]"#, "the database is a separate argument"),
            ("[{}, 7]", "operation 1 is not a JSON object"),
        ] {
            let message = operations(text).unwrap_err().to_string();
            assert!(message.contains(says) && message.contains("hint: "), "{message}");
        }
    }
}
