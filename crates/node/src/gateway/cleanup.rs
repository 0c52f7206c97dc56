//! Removes the gateway from the host (`ovnkube node --cleanup`).

use super::bridge::{BridgeChoice, choose};
use super::bridge_setup::BridgeSetup;
use super::error::GatewayError;
use super::host::{self, HostView};
use super::openflow::OpenFlow;
use super::reconciler::{SUBNETS, commit, own_networks};
use super::{management, packet_filter, sysctls, view};
use crate::kernel::Netlink;
use crate::options::{INTEGRATION_BRIDGE, Options};
use crate::switch::Switch;

/// Removes flows, nftables tables, routes, addresses, neighbours and the management port, whether or not they exist. A failure
/// does not stop the rest: all failures are returned.
pub(crate) async fn clean_up(options: &Options, switch: &Switch) -> Vec<GatewayError> {
    let mut failures: Vec<GatewayError> = Vec::new();
    failures.extend(packet_filter::remove().await.err().map(GatewayError::from));
    let client = switch.client();
    let bridges = view::bridges(&client.snapshot());
    let (netlink, host) = match read_host().await {
        Ok(both) => both,
        Err(error) => {
            failures.push(error);
            return failures;
        }
    };
    // A host that never had a gateway has nothing to restore.
    let external = match choose(options, &bridges, &host) {
        Ok(BridgeChoice::Bridge(name)) => bridges.get(&name),
        Ok(BridgeChoice::Device(_)) | Err(_) => None,
    };
    if let Some(bridge) = external {
        let own_networks = own_networks(options);
        let mut flows = OpenFlow::of(&bridge.name, &options.switch);
        failures.extend(flows.apply(&[], true).await.err().map(GatewayError::from));
        let removed = host::remove(&netlink, &host, &bridge.name, &own_networks).await;
        failures.extend(removed.err().map(GatewayError::from));
        failures.extend(sysctls::restore(client, bridge, &[sysctls::SAVED_SYSCTLS, SUBNETS]).await.err());
        if let Some((root, _)) = view::root(&client.snapshot()) {
            let setup = BridgeSetup { client, netlink: &netlink, host: &host, root, own_networks: &own_networks };
            failures.extend(setup.revert(bridge).await.err());
        }
    }
    if let Some(transaction) = bridges.get(INTEGRATION_BRIDGE).and_then(management::removal) {
        failures.extend(commit(client, &transaction).await.err());
    }
    failures
}

async fn read_host() -> Result<(Netlink, HostView), GatewayError> {
    let netlink = Netlink::host().map_err(GatewayError::Netlink)?;
    let host = HostView::read(&netlink).await?;
    Ok((netlink, host))
}
