//! `ovnkube plan`: the changes that manifests would cause, computed by the controller's core in memory.
//!
//! ```text
//!  files ──load──▶ manifests ──admit, overlay──▶ objects ──reachability::preview──▶ differences ──show, report──▶ stdout
//!                  cluster, database ──live──────────┘                     └──▶ question: --can, --matrix
//! ```

mod admit;
mod assume;
mod cluster_settings;
mod kinds;
mod live;
mod load;
mod question;
mod report;
mod show;
mod yaml;

use std::path::Path;
use std::process::ExitCode;

use objects::ObjectKind;
use reachability::preview::{ObjectEvent, Preview, differences};
use serde_json::Value;
use topology::ClusterSettings;

use self::admit::Objects;
use self::load::{Key, Loaded, Mistake, shown};
use self::report::Report;
use super::ovsdb::value;
use super::{CHANGES, FAILED, checked_settings};
use crate::cli::{Output, Plan};
use crate::config::{Config, ConfigArgs, Problems};
use crate::settings;

/// Kinds whose pods are created by controllers.
const WORKLOADS: [&str; 7] =
    ["CronJob", "DaemonSet", "Deployment", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"];

pub(super) fn run(plan: &Plan, args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let mut args = args.clone();
    if let Some(remotes) = &plan.nb {
        let names: Vec<String> = remotes.0.iter().map(ToString::to_string).collect();
        args.flags.insert(settings::NB_ADDRESS.flag, names.join(","));
    }
    let mut config = Config::load(&args)?;
    telemetry::init_logs(&config.log_options()?)?;
    let wrong = |error: anyhow::Error| Problems(vec![format!("{error:#}")]);
    // Only a cluster from a flag is read: the one in the file belongs to a role.
    let kubeconfig = args.flags.get(settings::KUBECONFIG.flag);
    if plan.files.is_empty() && kubeconfig.is_none() {
        return Err(Problems(vec!["nothing to plan; hint: give -f DIR|FILE, or --kubeconfig FILE".into()]).into());
    }
    let questions = question::questions(&plan.can)?;
    let mut loaded = Loaded::read(&plan.files);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (there, mut notes) = match kubeconfig {
        Some(file) => runtime.block_on(read_cluster(plan, Path::new(file), &mut config))?,
        None => (Objects::new(), Vec::new()),
    };
    notes.append(&mut loaded.notes);
    let cluster = checked_settings::cluster(&config).map_err(wrong)?;
    let mut preview = match &plan.nb {
        None => Preview::new(cluster.clone())?,
        Some(_) => {
            let access = checked_settings::northbound(&config).map_err(wrong)?;
            let live::Rows { schema, rows } = runtime.block_on(live::rows(&access))?;
            Preview::over(cluster.clone(), schema, rows)?
        }
    };
    // Without a database, the rows of the existing objects are computed as well.
    if plan.nb.is_none() && !there.is_empty() {
        for (key, object) in &there {
            put(&mut preview, key, object.clone(), None, &mut loaded.mistakes);
        }
        preview.settle()?;
    }
    let before = preview.snapshot();
    let (objects, mut hints, assumed) = objects(plan, &loaded, &there, &cluster);
    notes.extend(assumed);
    for (key, object) in objects {
        let location = loaded.manifests.get(&key).map(|manifest| manifest.location.clone());
        put(&mut preview, &key, object, location, &mut loaded.mistakes);
    }
    preview.settle()?;
    if let Some(inputs) = preview.engine().inputs() {
        let asked = match &plan.matrix {
            _ if !questions.is_empty() => Some(question::can(inputs, &questions, &notes, plan.output)),
            Some(asked) => Some(question::matrix(inputs, asked, &notes, plan.output)),
            None => None,
        };
        if let Some(answer) = asked {
            print_mistakes(&loaded.mistakes);
            print_remarks(&preview, &notes, &hints);
            let answer = answer?;
            return Ok(if loaded.mistakes.is_empty() { answer } else { ExitCode::from(FAILED) });
        }
    }
    hints.extend(workloads(&loaded));
    let changes = differences(&before, &preview.snapshot());
    let report = Report {
        changes: !changes.is_empty(),
        counts: report::counts(&changes),
        objects: (!plan.summary).then(|| report::by_object(changes)),
        refused: preview.refused().into_iter().map(Into::into).collect(),
        warnings: preview.warnings().into_iter().map(Into::into).collect(),
        not_part_of_the_network: loaded.ignored,
        errors: loaded.mistakes,
        notes,
        hints,
    };
    match plan.output {
        Output::Json => console::print_json(&report)?,
        Output::Table => console::print(&show::text(&report, console::table::colour()))?,
    }
    print_mistakes(&report.errors);
    print_notes(&report.notes);
    Ok(match (report.errors.is_empty(), report.changes) {
        (false, _) => ExitCode::from(FAILED),
        (true, true) => ExitCode::from(CHANGES),
        (true, false) => ExitCode::SUCCESS,
    })
}

/// Prints what may make an answer wrong: refused objects and missing ones.
fn print_remarks(preview: &Preview, notes: &[String], hints: &[String]) {
    for ObjectEvent { kind, name, reason, message } in preview.refused().into_iter().chain(preview.warnings()) {
        console::eprint_line(format_args!(
            "warning: {}",
            value::escape(&format!("{kind} {name}: {reason}: {message}"))
        ));
    }
    print_notes(notes);
    for hint in hints {
        console::eprint_line(format_args!("hint: {}", value::escape(hint)));
    }
}

/// Prints what is used or assumed without having been given.
fn print_notes(notes: &[String]) {
    for note in notes {
        console::eprint_line(format_args!("note: {}", value::escape(note)));
    }
}

/// The objects of a cluster; its settings fill those that are not given here. Returns notes on the settings.
async fn read_cluster(plan: &Plan, kubeconfig: &Path, config: &mut Config) -> anyhow::Result<(Objects, Vec<String>)> {
    let cluster = live::Cluster::connect(kubeconfig).await?;
    let objects = cluster.objects().await?;
    let found = cluster.config_map(plan.config_namespace.as_deref()).await;
    if let (Err(why), Some(_)) = (&found, &plan.config_namespace) {
        anyhow::bail!("{why}; hint: --config-namespace names the namespace of ConfigMap ovn-config");
    }
    Ok((objects, cluster_settings::fill(config, found)?))
}

fn print_mistakes(mistakes: &[Mistake]) {
    for mistake in mistakes {
        let line: String = mistake.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        console::eprint_line(format_args!("error: {line}"));
    }
}

/// All objects after applying the manifests, with hints, and notes on what is assumed.
fn objects(
    plan: &Plan,
    loaded: &Loaded,
    there: &Objects,
    cluster: &ClusterSettings,
) -> (Objects, Vec<String>, Vec<String>) {
    let mut objects = there.clone();
    for (key, manifest) in &loaded.manifests {
        let mut object = manifest.object.clone();
        if let Some(there) = there.get(key) {
            admit::overlay(key.0, &mut object, there);
        }
        admit::admit(key, &mut object);
        objects.insert(key.clone(), object);
    }
    let mut notes: Vec<String> = assume::namespaces(&mut objects, loaded.manifests.keys()).into_iter().collect();
    let has_nodes = objects.keys().any(|(kind, ..)| *kind == ObjectKind::Node);
    let is_manifest = |key: &Key| loaded.manifests.contains_key(key);
    let assume::Nodes { schedulable, notes: of_nodes, mut hints } =
        assume::nodes(plan, &mut objects, is_manifest, cluster);
    notes.extend(of_nodes);
    let left = admit::place_pods(&mut objects, &schedulable, is_manifest);
    if let Some(first) = left.first() {
        let count = left.len();
        let (pods, them) = match count {
            1 => (format!("pod {first} has"), "it"),
            _ => (format!("{count} pods ({first}, …) have"), "them"),
        };
        let hint = match (has_nodes, plan.sample_nodes) {
            (true, _) | (_, Some(_)) => format!("--node NAME places {them}"),
            (false, None) => format!("--sample-nodes 1 assumes a node and places {them} there"),
        };
        hints.push(format!("{pods} no spec.nodeName, which a scheduler would give: {hint}"));
    }
    admit::serve(&mut objects, &cluster.services);
    hints.extend(without_endpoints(&objects));
    (objects, hints, notes)
}

/// A hint on Services without EndpointSlices.
fn without_endpoints(objects: &Objects) -> Option<String> {
    let served = |namespace: &str, name: &str| {
        let mut slices =
            objects.iter().filter(|((kind, of, _), _)| *kind == ObjectKind::EndpointSlice && of == namespace);
        slices.any(|(_, slice)| slice["metadata"]["labels"]["kubernetes.io/service-name"] == name)
    };
    let selects =
        |service: &Value| service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty());
    let services = objects.iter().filter(|((kind, ..), service)| *kind == ObjectKind::Service && selects(service));
    let mut without = services.filter(|((_, namespace, name), _)| !served(namespace, name));
    let ((_, namespace, name), _) = without.next()?;
    let others = match without.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!(
        "Service {namespace}/{name}{others} has no EndpointSlice here, which Kubernetes would create from its pods: give those as \
         well (kubectl get endpointslices -o yaml)"
    ))
}

/// A hint on pods that controllers would create.
fn workloads(loaded: &Loaded) -> Option<String> {
    let kinds: Vec<&str> = WORKLOADS.into_iter().filter(|kind| loaded.ignored.contains_key(*kind)).collect();
    if kinds.is_empty() {
        return None;
    }
    let kinds = kinds.join(", ");
    Some(format!("Kubernetes creates the pods of these kinds: {kinds}; plan them as Pods (kubectl get pods -o yaml)"))
}

fn put(
    preview: &mut Preview,
    key: &Key,
    object: Value,
    location: Option<load::SourceLocation>,
    mistakes: &mut Vec<Mistake>,
) {
    let (kind, namespace, name) = key;
    if let Err(why) = preview.put(*kind, object) {
        let location = location.unwrap_or(load::SourceLocation { file: "the cluster".into(), line: None });
        let message = format!("invalid: {}", load::without_location(&why));
        let mistake = Mistake { location, object: Some(shown(*kind, namespace, name)), message };
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
}
