//! The layer below the file, only for `plan`: the ConfigMap `ovn-config` of a cluster's own pods
//! (`deploy/ovnkube/config.yaml`).

use std::collections::BTreeMap;
use std::path::Path;

use super::file::{self, Entries};
use super::{Problems, Source, ini};
use crate::settings::{self, Setting};

/// ConfigMap with the settings of a cluster, as OVN-Kubernetes (Go) names it too.
pub(crate) const NAME: &str = "ovn-config";
/// Default namespace of the ConfigMap.
pub(crate) const NAMESPACE: &str = "ovn-kubernetes";
/// Key whose value is a configuration file.
const FILE_KEY: &str = "ovn_k8s.conf";
/// Keys that stand for one setting each, as in OVN-Kubernetes (Go).
const KEYS: [(&str, &Setting); 2] = [("net_cidr", &settings::CLUSTER_SUBNETS), ("svc_cidr", &settings::SERVICE_CIDRS)];
/// Sections that describe the network. The others concern connections and logs of a pod, with paths in that pod.
const SECTIONS: [&str; 3] = ["default", "kubernetes", "gateway"];

/// The parts of a ConfigMap that are used.
#[derive(Debug)]
pub(crate) struct ConfigMap {
    /// `namespace/name`.
    pub(crate) name: String,
    pub(crate) data: BTreeMap<String, String>,
}

impl ConfigMap {
    /// Key and value of a setting.
    pub(crate) fn value_of(&self, setting: &Setting) -> Option<(&'static str, &str)> {
        let (key, _) = KEYS.into_iter().find(|(_, known)| known.flag == setting.flag)?;
        Some((key, self.data.get(key)?.trim()))
    }

    /// The settings. Keys win over the file, as environment variables do in the cluster's pods.
    pub(super) fn entries(&self) -> Result<Entries, Problems> {
        let Self { name, data } = self;
        let mut entries = Entries::default();
        let mut problems = Vec::new();
        if let Some(text) = data.get(FILE_KEY) {
            let path = format!("ConfigMap {name}, {FILE_KEY}");
            let mut parsed = file::check(Path::new(&path), &ini::parse(text.as_bytes()), &mut problems);
            for setting in SECTIONS.into_iter().flat_map(settings::in_section) {
                if let Some((value, _)) = parsed.remove(setting).filter(|_| setting.flag != settings::KUBECONFIG.flag) {
                    let source = Source::ConfigMap { name: name.clone(), key: FILE_KEY.to_owned() };
                    entries.insert(setting, value, source);
                }
            }
        }
        for (key, setting) in KEYS {
            let Some(value) = data.get(key).map(|value| value.trim()).filter(|value| !value.is_empty()) else {
                continue;
            };
            match (setting.check)(value) {
                Ok(()) => {
                    let source = Source::ConfigMap { name: name.clone(), key: key.to_owned() };
                    entries.insert(setting, value.to_owned(), source);
                }
                Err(why) => {
                    problems.push(format!("ConfigMap {name}: {key}: {value:?}: {why}; allowed: {}", setting.allowed));
                }
            }
        }
        if problems.is_empty() { Ok(entries) } else { Err(Problems(problems)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(data: &[(&str, &str)]) -> Result<Entries, Problems> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        ConfigMap { name: "ovn-kubernetes/ovn-config".into(), data }.entries()
    }

    #[test]
    fn keys_win_over_the_file_and_connections_are_not_taken() {
        let file = "[default]\ncluster-subnets=10.1.0.0/16/24\nmtu=1300\n[ovnnorth]\naddress=tcp:192.0.2.1:6641\n\
            [kubernetes]\nkubeconfig=/in/a/pod\n";
        let mut entries =
            entries(&[("net_cidr", "10.244.0.0/16/24"), ("svc_cidr", ""), ("ovn_k8s.conf", file)]).unwrap();
        let mut value = |setting| entries.remove(setting).map(|(value, source)| format!("{value} from {source}"));
        let of = "of ConfigMap ovn-kubernetes/ovn-config";
        assert_eq!(value(&settings::CLUSTER_SUBNETS), Some(format!("10.244.0.0/16/24 from net_cidr {of}")));
        assert_eq!(value(&settings::MTU), Some(format!("1300 from ovn_k8s.conf {of}")));
        for setting in [&settings::SERVICE_CIDRS, &settings::NB_ADDRESS, &settings::KUBECONFIG] {
            assert_eq!(value(setting), None, "{}", setting.flag);
        }
    }

    #[test]
    fn bad_values_name_the_config_map_and_the_key() {
        let Problems(problems) = entries(&[("net_cidr", "ten"), ("ovn_k8s.conf", "[default]\nmtu=7\n")]).unwrap_err();
        assert!(problems[0].starts_with("ConfigMap ovn-kubernetes/ovn-config, ovn_k8s.conf:2: [default] mtu"));
        assert!(problems[1].starts_with("ConfigMap ovn-kubernetes/ovn-config: net_cidr: \"ten\""), "{problems:?}");
    }
}
