//! Reads what tests check: Events, conditions, metrics, API calls, and the controller's rows.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};

use serde_json::{Value, json};

use crate::cluster::{Cluster, TIMEOUT, node, until};

/// Where a controller serves its metrics, on the control machine.
pub(crate) const METRICS: &str = "127.0.0.1:9102";

impl Cluster {
    /// Starts a controller with metrics; it leads when this returns.
    pub(crate) fn lead(&self, name: &str) {
        self.controller_with(name, &["--metrics-bind-address", METRICS]);
        self.wait_leader(name);
    }

    pub(crate) fn stop(&self, name: &str) {
        assert!(self.lab.terminate(name, TIMEOUT).unwrap().success(), "{name} did not exit with success");
    }

    /// `kubectl create` from stdin: arguments are limited in size, and `apply` would store everything twice.
    pub(crate) fn create(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let control = self.lab.machine("control").unwrap();
        control.run_with_input(&["kubectl", "create", "-f", "-"], &list.to_string()).unwrap();
    }

    pub(crate) fn delete(&self, kind: &str, names: &[&str]) {
        let mut words = vec!["delete", "--ignore-not-found", "--wait=true", kind];
        words.extend(names);
        self.lab.kubectl(&words).unwrap();
    }

    /// A node on the light chassis `n<number>`, with more annotations.
    pub(crate) fn light_node(&self, name: &str, number: u32, more: &[(&str, &str)]) {
        let mut object = node(name);
        object["metadata"]["annotations"] = more.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        self.create(&[object]);
        self.annotate_node(name, number, "shared");
    }

    pub(crate) fn annotation(&self, kind: &str, name: &str, key: &str) -> Option<String> {
        self.get(&[kind, name])["metadata"]["annotations"][key].as_str().map(str::to_owned)
    }

    /// Waits for an Event of this reason whose message contains all these words; returns the message.
    pub(crate) fn event(&self, name: &str, reason: &str, words: &[&str]) -> String {
        self.event_in("default", name, reason, words)
    }

    /// Like [`Self::event`], in another namespace.
    pub(crate) fn event_in(&self, namespace: &str, name: &str, reason: &str, words: &[&str]) -> String {
        let field = format!("--field-selector=involvedObject.name={name},reason={reason}");
        let mut seen = Vec::new();
        until(&format!("an Event {reason} about {name} with {words:?}"), || {
            let events = self.get(&["events", "-n", namespace, &field]);
            let messages = events["items"].as_array().unwrap().iter().filter_map(|event| event["message"].as_str());
            seen = messages.map(str::to_owned).collect::<Vec<_>>();
            seen.iter().find(|message| words.iter().all(|word| message.contains(word))).cloned()
        })
    }

    /// The status of a node's condition `NetworkUnavailable`.
    pub(crate) fn network_unavailable(&self, node: &str) -> Option<String> {
        let node = self.get(&["node", node]);
        let conditions = node["status"]["conditions"].as_array()?;
        let condition = conditions.iter().find(|condition| condition["type"] == "NetworkUnavailable")?;
        condition["status"].as_str().map(str::to_owned)
    }

    /// A metric of the controller that [`Self::lead`] started.
    pub(crate) fn metric(&self, line: &str) -> f64 {
        let control = self.lab.machine("control").unwrap();
        let mut stream = control.connect(METRICS.parse().unwrap(), TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|own| own.strip_prefix(line)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no metric {line} in\n{text}"))
    }

    /// API calls for these resources so far, by verb, resource and subresource.
    pub(crate) fn api_calls(&self, resources: &[&str]) -> BTreeMap<String, u64> {
        let text = self.lab.kubectl(&["get", "--raw=/metrics"]).unwrap();
        let mut calls: BTreeMap<String, u64> = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let label = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}=\"")).unwrap();
                rest.split_once('"').unwrap().0
            };
            if resources.contains(&label("resource")) {
                let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
                let key = format!("{} {} {}", label("verb"), label("resource"), label("subresource"));
                *calls.entry(key).or_default() += count as u64;
            }
        }
        calls
    }

    /// The controller's rows, without columns that OVN writes; includes tables without `external_ids`.
    pub(crate) fn rows(&self) -> BTreeSet<String> {
        let remote = self.lab.record().endpoints.northbound.clone().unwrap();
        let control = self.lab.machine("control").unwrap();
        let text = control.run(&["ovsdb-client", "--format=json", "dump", &remote, "OVN_Northbound"]).unwrap();
        let mut rows = BTreeSet::new();
        for table in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let headings: Vec<&str> = table["headings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            for row in table["data"].as_array().unwrap() {
                let text: String = headings
                    .iter()
                    .zip(row.as_array().unwrap())
                    .filter(|(column, _)| !["up", "status", "hv_cfg", "tag"].contains(column))
                    .map(|(column, value)| format!("{column}={value} "))
                    .collect();
                let unmarked = ["Static_MAC_Binding table", "Load_Balancer_Group table"];
                let caption = table["caption"].as_str().unwrap_or_default();
                // The empty row of a chassis that no node uses.
                if text.contains(r#"variables=["map",[]]"#) {
                    continue;
                }
                if text.contains(r#"["k8s.ovn.org/owner-controller","ovnkube"]"#) || unmarked.contains(&caption) {
                    rows.insert(format!("{caption}: {text}"));
                }
            }
        }
        rows
    }

    /// Empties the northbound database, as a replaced disk would.
    pub(crate) fn empty_northbound(&self) {
        let tables = ["Logical_Switch", "Logical_Router", "Address_Set", "Port_Group", "Load_Balancer_Group", "Meter"];
        let mut words = Vec::new();
        for table in tables.into_iter().chain(["Copp", "Static_MAC_Binding", "Load_Balancer", "Chassis_Template_Var"]) {
            words.extend(["--", "--all", "destroy", table]);
        }
        words.extend(["--", "clear", "NB_Global", ".", "external_ids"]);
        self.lab.nbctl(&words[1..]).unwrap();
        assert_eq!(self.rows(), BTreeSet::new());
    }

    /// The quarantined addresses in `NB_Global`.
    pub(crate) fn quarantined(&self) -> Vec<String> {
        let ids = self.lab.nbctl(&["get", "NB_Global", ".", "external_ids"]).unwrap();
        let keys = ids.split(['{', ',']).filter_map(|pair| pair.trim().split_once('='));
        keys.filter_map(|(key, _)| key.trim_matches('"').strip_prefix("k8s.ovn.org/resting/")).map(Into::into).collect()
    }

    /// The values of a column, one per row.
    pub(crate) fn column(&self, table: &str, column: &str) -> Vec<String> {
        let columns = format!("--columns={column}");
        let text = self.lab.nbctl(&["--bare", &columns, "list", table]).unwrap();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }
}
