//! Verdicts about the first packet of a connection.

use std::fmt;

use serde::Deserialize;

use crate::address::Family;
use crate::admin::{self, Action};
use crate::cluster::Cluster;
use crate::end::{End, TrafficEnd};
use crate::network_policy;
use crate::objects::Protocol;

/// Whether a packet may pass, with the reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// False also if an end does not exist, or has no address of the family.
    pub allowed: bool,
    /// The deciding rules, in order of evaluation.
    pub why: Vec<String>,
}

/// Direction of traffic, as seen from a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        })
    }
}

/// The first packet of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic<'a> {
    pub(crate) from: End<'a>,
    pub(crate) to: End<'a>,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

impl<'a> Traffic<'a> {
    /// The end whose policies are evaluated.
    fn subject(&self, direction: Direction) -> &End<'a> {
        match direction {
            Direction::Ingress => &self.to,
            Direction::Egress => &self.from,
        }
    }

    pub(crate) fn peer(&self, direction: Direction) -> &End<'a> {
        match direction {
            Direction::Ingress => &self.from,
            Direction::Egress => &self.to,
        }
    }
}

impl Cluster {
    /// Whether the first packet of a connection may pass. For Services query [`Cluster::service`] first: policies see the
    /// selected endpoint and its port.
    pub fn verdict(
        &self,
        from: &TrafficEnd,
        to: &TrafficEnd,
        protocol: Protocol,
        port: u16,
        family: Family,
    ) -> Verdict {
        let (from, to) = match (self.end(from, family), self.end(to, family)) {
            (Ok(from), Ok(to)) => (from, to),
            (Err(problem), _) | (_, Err(problem)) => return Verdict { allowed: false, why: vec![problem] },
        };
        if from.address == to.address {
            return Verdict { allowed: true, why: vec![format!("{from} always reaches itself")] };
        }
        if self.is_service_address(to.address) {
            return Verdict { allowed: false, why: vec![format!("no Service has {} with this port", to.address)] };
        }
        let traffic = Traffic { from: self.speaking(from), to, protocol, port };
        let mut why = Vec::new();
        let allowed = self.evaluate(Direction::Egress, &traffic, &mut why)
            && self.evaluate(Direction::Ingress, &traffic, &mut why);
        Verdict { allowed, why }
    }

    /// Evaluates the policies of one direction.
    fn evaluate(&self, direction: Direction, traffic: &Traffic<'_>, why: &mut Vec<String>) -> bool {
        let subject = traffic.subject(direction);
        let Some(pod) = subject.pod() else {
            why.push(format!("{direction} of {subject}: not on the cluster network, no policy applies"));
            return true;
        };
        match admin::decide(self, direction, pod, traffic, why) {
            Some(Action::Allow) => return true,
            Some(Action::Deny) => return false,
            Some(Action::Pass) | None => {}
        }
        if let Some(allowed) = network_policy::decide(self, direction, pod, traffic, why) {
            return allowed;
        }
        match admin::decide_baseline(self, direction, pod, traffic, why) {
            Some(Action::Deny) => return false,
            Some(Action::Allow | Action::Pass) => return true,
            None => {}
        }
        why.push(format!("{direction} of {pod}: no policy denies it"));
        true
    }
}
