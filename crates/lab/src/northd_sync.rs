//! Whether ovn-northd works: a client of the northbound database that has it copy a new `nb_cfg` to the southbound database, and
//! back.

use std::time::Duration;

use ovsdb::client::{Client, Config, Remote, TableMonitor};
use ovsdb::datum::Atom;
use ovsdb::operation::{Mutation, Mutator};
use ovsdb::transaction::Transaction;
use tokio::runtime::Runtime;

use crate::error::{Error, Result};

/// Delay before a failed write is repeated.
const RETRY: Duration = Duration::from_millis(10);

/// A client for [`NorthdSync::wait`].
#[derive(Debug)]
pub struct NorthdSync {
    client: Client,
    runtime: Runtime,
}

impl NorthdSync {
    /// `northbound` is the list of servers, as in `lab.json`.
    pub fn connect(northbound: &str) -> Result<Self> {
        let remotes = Remote::parse_list(northbound).map_err(|error| Error::Invalid(error.to_string()))?;
        let config = Config::new(remotes, "OVN_Northbound");
        let config = config.monitor(TableMonitor::new("NB_Global").columns(&["nb_cfg", "sb_cfg"]));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::io("cannot start a runtime"))?;
        let client = runtime.block_on(async { Client::start(config) });
        Ok(Self { client, runtime })
    }

    /// Increments `nb_cfg`, and returns when `sb_cfg` has the same value.
    pub fn wait(&self, limit: Duration) -> Result<()> {
        let sync = async {
            let mut changes = self.client.subscribe();
            let add = vec![Mutation::new("nb_cfg", Mutator::Add, Atom::Integer(1))];
            let mut transaction = Transaction::new();
            transaction.mutate("NB_Global", Vec::new(), add);
            while self.client.transact(&transaction).await.is_err() {
                tokio::time::sleep(RETRY).await;
            }
            loop {
                changes.next().await;
                let snapshot = self.client.snapshot();
                let row = snapshot.table("NB_Global").and_then(|table| table.iter().next());
                if row.is_some_and(|row| row.integer("nb_cfg") == row.integer("sb_cfg")) {
                    return;
                }
            }
        };
        let done = self.runtime.block_on(async { tokio::time::timeout(limit, sync).await });
        done.map_err(|_| {
            Error::Invalid(format!("northd did not work for {limit:?}: {:?}", self.client.status().borrow()))
        })
    }
}
