//! Kubernetes' own programs: from a folder that the user names, from the cache, or built from Go modules.
//!
//! `lab/kubernetes/go.mod` pins the version; it is the one place to change it (`lab/kubernetes/pin VERSION`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result, write_file};
use crate::place::{CACHE_VARIABLE, KUBERNETES_VARIABLE, Place, require_space};
use crate::process::lines_of;
use crate::progress::Progress;

const MODULE: &str = include_str!("../../../lab/kubernetes/go.mod");
const SUMS: &str = include_str!("../../../lab/kubernetes/go.sum");
const PAUSE: &str = include_str!("../../../lab/kubernetes/pause/main.go");

/// What a lab with Kubernetes runs.
pub const PROGRAMS: &[&str] =
    &["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "agnhost", "pause"];

const SPACE_MIB: u64 = 4000;
const OLDEST_GO_THAT_FETCHES_ANOTHER: (u32, u32) = (1, 21);

/// The pinned version, as `go.mod` says it.
pub fn version() -> &'static str {
    MODULE
        .lines()
        .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix("k8s.io/kubernetes "))
        .map_or("unknown", |rest| rest.split_whitespace().next().unwrap_or("unknown"))
}

/// The folder that holds all programs, built now if need be.
pub fn ensure(place: &Place, progress: &Progress) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os(KUBERNETES_VARIABLE).filter(|value| !value.is_empty()) {
        return given(PathBuf::from(folder));
    }
    let base = place.cache().join("kubernetes");
    let folder = base.join(format!("{}-{}", version(), recipe_hash()));
    if folder.exists() {
        return Ok(folder);
    }
    require_space(&base, "Kubernetes and its build cache", SPACE_MIB, CACHE_VARIABLE)?;
    let lock_path = base.join("build.lock");
    let lock = std::fs::File::create(&lock_path).map_err(Error::io(format!("cannot write {}", lock_path.display())))?;
    lock.lock().map_err(Error::io(format!("cannot lock {}", lock_path.display())))?;
    if folder.exists() {
        return Ok(folder);
    }
    let step = format!("Kubernetes {} from source", version());
    progress.step(&step, || build(&base, &folder, |line| progress.note(&step, line)))?;
    Ok(folder)
}

fn given(folder: PathBuf) -> Result<PathBuf> {
    let missing: Vec<&str> = PROGRAMS.iter().copied().filter(|program| !folder.join(program).is_file()).collect();
    if missing.is_empty() && folder.is_absolute() {
        return Ok(folder);
    }
    Err(Error::Invalid(if missing.is_empty() {
        format!("{KUBERNETES_VARIABLE}={} must be an absolute path", folder.display())
    } else {
        format!(
            "{KUBERNETES_VARIABLE}={} lacks {}; put them there, or unset the variable to have all of Kubernetes built",
            folder.display(),
            missing.join(", ")
        )
    }))
}

fn recipe_hash() -> String {
    let hash = [MODULE, SUMS, PAUSE].iter().fold(Sha256::new(), Digest::chain_update);
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

fn build(base: &Path, folder: &Path, note: impl Fn(&str)) -> Result<()> {
    let source = base.join("source");
    write_file(&source.join("go.mod"), MODULE)?;
    write_file(&source.join("go.sum"), SUMS)?;
    write_file(&source.join("pause/main.go"), PAUSE)?;
    let unfinished = base.join("unfinished");
    let _ = std::fs::remove_dir_all(&unfinished);
    crate::error::make_dir(&unfinished)?;

    let mut go = Command::new("go");
    go.args(["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", &linker_flags(), "-o"])
        .arg(&unfinished)
        .args(["tool", "./pause"])
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        .envs(toolchain()?)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = go.spawn().map_err(go_missing)?;
    let mut said = Vec::new();
    let mut packages = 0_u32;
    if let Some(stderr) = child.stderr.take() {
        for line in lines_of(stderr) {
            if line.contains(' ') {
                said.push(line);
            } else {
                packages += 1;
                if packages.is_multiple_of(100) {
                    note(&format!("{packages} packages compiled, now {line}"));
                }
            }
        }
    }
    let status = child.wait().map_err(Error::io("cannot wait for go"))?;
    if !status.success() {
        return Err(explain(base, &said));
    }
    for program in PROGRAMS {
        if !unfinished.join(program).is_file() {
            return Err(Error::Invalid(format!(
                "the build of Kubernetes made no {program}; is it listed under `tool` in lab/kubernetes/go.mod?"
            )));
        }
    }
    std::fs::rename(&unfinished, folder).map_err(Error::io(format!("cannot move the programs to {}", folder.display())))
}

fn linker_flags() -> String {
    let mut numbers = version().trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let set = |name: &str, value: &str| format!(" -X k8s.io/component-base/version.{name}={value}");
    format!("-s -w{}{}{}", set("gitVersion", version()), set("gitMajor", major), set("gitMinor", minor))
}

/// Lets an older Go fetch the one that Kubernetes needs; refuses one that cannot.
fn toolchain() -> Result<BTreeMap<&'static str, &'static str>> {
    let output = Command::new("go").args(["env", "GOVERSION"]).output().map_err(go_missing)?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let needed = MODULE.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default();
    match (numbers(text.trim_start_matches("go")), numbers(needed)) {
        (Some(have), Some(need)) if have >= need => Ok(BTreeMap::new()),
        (Some(have), _) if have >= OLDEST_GO_THAT_FETCHES_ANOTHER => Ok(BTreeMap::from([("GOTOOLCHAIN", "auto")])),
        _ => Err(Error::MissingTool {
            program: format!("Go {needed}"),
            purpose: format!("it builds Kubernetes {}; found {text:?}", version()),
            remedy: format!(
                "install Go {needed} (any Go from 1.21 on fetches it by itself), or set {KUBERNETES_VARIABLE} to a folder with the binaries"
            ),
        }),
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn go_missing(error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::MissingTool {
            program: "go".into(),
            purpose: format!("it builds Kubernetes {} from its modules", version()),
            remedy: format!(
                "apt-get install golang-go, `make prerequisites`, or set {KUBERNETES_VARIABLE} to a folder with the binaries"
            ),
        }
    } else {
        Error::Io { doing: "cannot run go".into(), source: error }
    }
}

fn explain(base: &Path, said: &[String]) -> Error {
    let find = |words: &[&str]| said.iter().find(|line| words.iter().any(|word| line.contains(word))).cloned();
    let what = format!("the modules of Kubernetes {}", version());
    if find(&["no space left on device"]).is_some() {
        let free_mib = crate::place::free_mib(base).unwrap_or(0);
        return Error::DiskFull {
            path: base.to_owned(),
            what,
            needed_mib: SPACE_MIB,
            free_mib,
            variable: CACHE_VARIABLE,
        };
    }
    if let Some(cause) = find(&[
        "dial tcp",
        "lookup ",
        "proxyconnect",
        "Forbidden",
        "connection refused",
        "i/o timeout",
        "module lookup disabled",
    ]) {
        return Error::Unreachable {
            what,
            cause,
            remedy: "check the network and `go env GOPROXY`, then run it again".into(),
        };
    }
    let cause = said.last().cloned().unwrap_or_else(|| "go said nothing".into());
    Error::Unreachable {
        what,
        cause,
        remedy: format!("run `go build tool ./pause` in {} to see more", base.join("source").display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_comes_from_the_module() {
        assert!(version().starts_with("v1."), "{}", version());
        assert!(linker_flags().contains(version()));
    }

    #[test]
    fn every_staging_module_is_pinned_to_the_same_release() {
        let staging = version().replacen("v1.", "v0.", 1);
        let replaced: Vec<&str> = MODULE.lines().filter(|line| line.contains("=>")).collect();
        assert!(replaced.len() > 20);
        assert!(replaced.iter().all(|line| line.ends_with(&staging)), "{replaced:?}");
    }

    #[test]
    fn a_folder_without_the_programs_is_refused_by_name() {
        let message = given(std::env::temp_dir().join("no-kubernetes-here")).unwrap_err().to_string();
        assert!(message.contains("kube-apiserver") && message.contains(KUBERNETES_VARIABLE), "{message}");
    }

    #[test]
    fn failures_of_go_become_one_line() {
        let said = |line: &str| explain(&std::env::temp_dir(), &[line.to_owned()]).to_string();
        assert!(said("go: x@v1: dial tcp: lookup proxy: no such host").contains("check the network"));
        assert!(said("link: write /x: no space left on device").contains(CACHE_VARIABLE));
        assert!(said("undefined: x").contains("undefined: x"));
    }
}
