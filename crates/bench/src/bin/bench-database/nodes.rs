//! A lab with some real ovn-controllers among light chassis, under the product's topology.

use anyhow::{Context, Result};
use lab::{ChassisSpec, Databases, Kubernetes, Lab, LabSpec, Machine, Ovn};

use crate::controller::Controller;
use crate::objects::{Pods, node_name};
use crate::world::World;

/// Pods of each real node that are connected.
const BOUND: usize = 5;

/// The chassis of the lab's machines get the names of the first nodes.
pub(crate) struct Nodes {
    pub(crate) world: World,
    pub(crate) real: u32,
    controller: Controller,
    /// Process of the southbound server.
    server: u32,
}

impl Nodes {
    /// `real` machines with ovn-controllers, and light chassis for the other nodes.
    pub(crate) fn start(real: u32, nodes: usize) -> Result<Self> {
        eprintln!("a lab for {nodes} nodes, {real} of them with real ovn-controllers");
        let ovn = Ovn { databases: Databases::Standalone, ..Ovn::default() };
        let spec = LabSpec::for_test("bench-relay")?.nodes(real).ovn(ovn).kubernetes(Kubernetes::default());
        let lab = Lab::start(spec)?;
        let record = lab.record();
        let northbound = record.endpoints.northbound.context("the lab has no northbound database")?;
        let southbound = record.endpoints.southbound.context("the lab has no southbound database")?;
        let server = lab.record().component("sb")?.process.pid;
        for number in 1..=real {
            rename(&lab, number, &node_name(number as usize - 1))?;
        }
        let chassis = ChassisSpec::numbered("node-", u32::try_from(nodes)?);
        let world = World::around(lab, nodes, [northbound, southbound], &chassis[real as usize..])?.with_northd();
        let controller = Controller::lead(&world, "c1")?;
        world.join_nodes()?;
        let nodes = Self { world, real, controller, server };
        nodes.settle()?;
        Ok(nodes)
    }

    /// Waits until every chassis has applied everything.
    pub(crate) fn settle(&self) -> Result<()> {
        self.world.settle(&[&self.controller])?;
        self.world.lab.nbctl(&["--wait=hv", "sync"])?;
        Ok(())
    }

    pub(crate) fn grow(&self, purpose: &str, pods: usize) -> Result<Pods> {
        let pods = Pods::new(purpose, pods, self.world.nodes);
        self.world.grow(&pods)?;
        self.settle()?;
        Ok(pods)
    }

    /// Connects some pods of each real node. Without any, ovn-controller has no logical switch to watch.
    pub(crate) fn bind(&self, pods: &Pods) -> Result<()> {
        for number in 1..=self.real {
            let own = (0..pods.count).filter(|pod| pod % self.world.nodes == number as usize - 1);
            for pod in own.take(BOUND) {
                let port = pods.port(pod);
                let version = self.world.lab.nbctl(&["get", "Logical_Switch_Port", &port, "options:iface-id-ver"])?;
                let (name, id) = (format!("p{pod}"), format!("external_ids:iface-id={port}"));
                let version = format!("external_ids:iface-id-ver={}", version.trim());
                let add = ["ovs-vsctl", "--no-wait", "add-port", "br-int", &name, "--", "set", "Interface", &name];
                let words = [&add[..], &["type=internal", &id, &version]].concat();
                self.world.lab.node(number)?.run(&words)?;
                self.world.lab.nbctl(&["wait-until", "Logical_Switch_Port", &port, "up=true"])?;
            }
        }
        self.settle()
    }

    /// Changes settings of all real ovn-controllers.
    pub(crate) fn set(&self, settings: &[(&str, &str)]) -> Result<()> {
        for number in 1..=self.real {
            let mut words = vec!["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", "."];
            let settings: Vec<String> =
                settings.iter().map(|(key, value)| format!("external_ids:{key}=\"{value}\"")).collect();
            words.extend(settings.iter().map(String::as_str));
            self.world.lab.node(number)?.run(&words)?;
        }
        Ok(())
    }

    /// Restarts all real ovn-controllers, which then read the whole database again.
    pub(crate) fn restart(&self) -> Result<()> {
        for number in 1..=self.real {
            let name = format!("n{number}-ovn-controller");
            self.world.lab.kill(&name)?;
            self.world.lab.restart(&name)?;
        }
        self.settle()
    }

    /// Bytes that a real node has received, the mean of all.
    pub(crate) fn received(&self) -> Result<f64> {
        let mut sum = 0.0;
        for number in 1..=self.real {
            sum += received(&self.world.lab.node(number)?)?;
        }
        Ok(sum / f64::from(self.real))
    }

    /// CPU seconds of the southbound server.
    pub(crate) fn server_cpu(&self) -> Result<f64> {
        Ok(bench::process_cpu_seconds(self.server)?)
    }
}

/// Gives the chassis of a machine another name. A running ovn-controller cannot change it: its tunnel endpoint exists.
fn rename(lab: &Lab, number: u32, name: &str) -> Result<()> {
    let controller = format!("n{number}-ovn-controller");
    lab.kill(&controller)?;
    let old = format!("n{number}");
    // Its acknowledgement would be waited for.
    lab.sbctl(&["--if-exists", "chassis-del", &old, "--", "--if-exists", "destroy", "Chassis_Private", &old])?;
    let id = format!("external_ids:system-id={name}");
    lab.node(number)?.run(&["ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", &id])?;
    lab.restart(&controller)?;
    lab.sbctl(&["wait-until", "Chassis", name])?;
    Ok(())
}

/// Bytes that a machine has received.
pub(crate) fn received(machine: &Machine) -> Result<f64> {
    Ok(machine.run(&["cat", "/sys/class/net/eth0/statistics/rx_bytes"])?.trim().parse()?)
}
