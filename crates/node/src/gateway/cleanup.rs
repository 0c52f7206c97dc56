//! Everything off the host again.

use super::bridge::{Choice, choose};
use super::carried::{SUBNETS, commit, own_networks};
use super::host::{self, HostView};
use super::making::Workplace;
use super::openflow::OpenFlow;
use super::{management, packet_filter, settings, view};
use crate::kernel::Netlink;
use crate::options::{INTEGRATION_BRIDGE, Options};
use crate::switch::Switch;

/// Takes flows, the packet filter, routes, addresses, neighbours and the management port off the host. What is gone already
/// is no error; what fails is told, and the rest goes on.
pub async fn clean_up(options: &Options, switch: &Switch) -> Result<(), String> {
    let mut failures: Vec<String> = Vec::new();
    let mut note = |result: Result<(), String>| failures.extend(result.err());
    note(packet_filter::remove().await);
    let client = switch.client();
    let bridges = view::bridges(&client.snapshot());
    let netlink = Netlink::host().map_err(|error| format!("the kernel cannot be asked about its network: {error}"))?;
    let host = HostView::look(&netlink).await.map_err(|error| error.to_string())?;
    // A host that never had a gateway has nothing to give back.
    let external = match choose(options, &bridges, &host) {
        Ok(Choice::Bridge(name)) => bridges.get(&name),
        Ok(Choice::Device(_)) | Err(_) => None,
    };
    if let Some(bridge) = external {
        let mut flows = OpenFlow::of(&bridge.name, &options.switch);
        note(flows.carry(&[], true).await.map(drop));
        note(host::remove(&netlink, &host, &bridge.name, &own_networks(options)).await);
        note(settings::give_back(client, bridge, &[settings::BEFORE, SUBNETS]).await);
        if let Some((root, _)) = view::root(&client.snapshot()) {
            let ours = own_networks(options);
            let workplace = Workplace { client, netlink: &netlink, host: &host, root, ours: &ours };
            note(workplace.undo(bridge).await);
        }
    }
    if let Some(transaction) = bridges.get(INTEGRATION_BRIDGE).and_then(management::removal) {
        note(commit(client, &transaction).await);
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
}
