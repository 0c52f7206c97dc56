//! CHECK: what was made is compared with what it should be.

use std::path::PathBuf;

use cni::{Attachment, Code, Failure, PodReference};
use ovsdb::uuid::Uuid;
use tokio::time::{Instant, timeout};

use super::add::of_link;
use super::{Inner, wiring};
use crate::switch::rows::{FoundPort, PodPort, pod_ports};

impl Inner {
    pub(super) async fn check(
        &self,
        attachment: &Attachment,
        namespace: &str,
        pod: &PodReference,
    ) -> Result<(), Failure> {
        let _turn = self.desk.turn(attachment).await;
        let wanted = timeout(self.parts.patience, self.parts.pods.wanted(pod)).await.map_err(|_| {
            let message = format!("it is not known what pod {}/{} should have", pod.namespace, pod.name);
            Failure::new(Code::TryAgainLater, message).with_details(self.parts.pods.why_nothing_comes(pod))
        })??;
        if let Err(why) = self.parts.ports.reachable() {
            let message = "the database of Open vSwitch cannot be reached: start Open vSwitch on this node";
            return Err(Failure::new(Code::TryAgainLater, message).with_details(why));
        }
        let mtu = *self.parts.mtu.borrow();
        let userspace = self.userspace(Instant::now() + self.parts.patience).await?;
        let link = wiring::link(attachment, &wanted, mtu, userspace);
        let (checked, path) = (link.clone(), PathBuf::from(namespace));
        let mut wrong = self.beside(move || checked.check(&path)).await?.map_err(|error| of_link(&error))?;
        let expected =
            wiring::port(attachment, &wanted, namespace, (Uuid::from_bytes([0; 16]), Uuid::from_bytes([0; 16])));
        let ports = pod_ports(&self.parts.ports.snapshot(), None);
        match ports.iter().find(|port| port.name == link.host) {
            None => wrong.push(format!("port {} of br-int, with its external_ids:sandbox, is gone", link.host)),
            Some(port) => wrong.extend(port_damage(port, &expected)),
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let message = format!("the network of pod {} is not as it should be", wanted.key);
        Err(Failure::new(Code::CheckFailed, message)
            .with_details(format!("{}; delete the pod, so that it is made again", wrong.join("; "))))
    }
}

/// What is wrong with a port.
fn port_damage(port: &FoundPort, expected: &PodPort) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut compare = |key: &str, found: Option<&str>, expected: &str| {
        if found != Some(expected) {
            let found = found.unwrap_or("nothing");
            wrong.push(format!("port {} of br-int has {found} as external_ids:{key}, not {expected}", port.name));
        }
    };
    compare("iface-id", Some(&port.logical), &expected.logical);
    compare("iface-id-ver", Some(&port.uid), &expected.uid);
    compare("sandbox", Some(&port.sandbox), &expected.sandbox);
    compare("attached_mac", port.mac.as_deref(), &expected.mac);
    compare("ip_addresses", port.addresses.as_deref(), &expected.addresses);
    // Another implementation names neither.
    if port.inside.is_some() || port.namespace.is_some() {
        compare("k8s.ovn.org/interface", port.inside.as_deref(), &expected.inside);
        compare("k8s.ovn.org/netns", port.namespace.as_deref(), &expected.namespace);
    }
    if let Some(error) = &port.error {
        wrong.push(format!("ovs-vswitchd cannot use port {}: {error}", port.name));
    }
    if !port.installed {
        wrong.push(format!("ovn-controller has not installed port {}", port.name));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_differs_is_named() {
        let text = |text: &str| text.to_owned();
        let zero = Uuid::from_bytes([0; 16]);
        let expected = PodPort {
            port_row: zero,
            interface_row: zero,
            name: text("pod0"),
            logical: text("ns_p"),
            uid: text("u-1"),
            mac: text("0a:58:0a:82:00:05"),
            addresses: text("10.130.0.5/23"),
            sandbox: text("s-1"),
            inside: text("eth0"),
            namespace: text("/run/netns/x"),
        };
        let whole = FoundPort {
            port_row: zero,
            name: text("pod0"),
            logical: text("ns_p"),
            uid: text("u-1"),
            sandbox: text("s-1"),
            inside: Some(text("eth0")),
            namespace: Some(text("/run/netns/x")),
            mac: Some(text("0a:58:0a:82:00:05")),
            addresses: Some(text("10.130.0.5/23")),
            installed: true,
            error: None,
        };
        assert!(port_damage(&whole, &expected).is_empty());
        let foreign = FoundPort { inside: None, namespace: None, ..whole.clone() };
        assert!(port_damage(&foreign, &expected).is_empty(), "another implementation has fewer keys");
        for (key, damaged) in [
            ("iface-id", FoundPort { logical: text("ns_q"), ..whole.clone() }),
            ("iface-id-ver", FoundPort { uid: text("u-2"), ..whole.clone() }),
            ("sandbox", FoundPort { sandbox: text("s-2"), ..whole.clone() }),
            ("attached_mac", FoundPort { mac: None, ..whole.clone() }),
            ("ip_addresses", FoundPort { addresses: Some(text("10.130.0.6/23")), ..whole.clone() }),
            ("k8s.ovn.org/interface", FoundPort { inside: None, ..whole.clone() }),
            ("k8s.ovn.org/netns", FoundPort { namespace: Some(text("/run/netns/y")), ..whole.clone() }),
            ("ovs-vswitchd", FoundPort { error: Some(text("no device")), ..whole.clone() }),
            ("has not installed", FoundPort { installed: false, ..whole.clone() }),
        ] {
            let wrong = port_damage(&damaged, &expected);
            assert!(wrong.len() == 1 && wrong[0].contains(key), "{key}: {wrong:?}");
        }
    }
}
