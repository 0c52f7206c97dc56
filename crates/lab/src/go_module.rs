//! Programs from Go modules: from a folder that the user names, from the cache, or built now.
//!
//! A module's `go.mod` pins the version and is the one place to change it; its `go.sum` is committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sha2::{Digest, Sha256};

use crate::error::{Error, Result, write_file};
use crate::place::{CACHE_VARIABLE, KUBERNETES_VARIABLE, Place, require_space};
use crate::process::lines_of;
use crate::progress::Progress;

const OLDEST_GO_THAT_FETCHES_ANOTHER: (u32, u32) = (1, 21);

/// A module and what is built of it.
#[derive(Debug)]
pub(crate) struct GoModule {
    /// What people call it.
    pub(crate) name: &'static str,
    /// The module whose version is the one that is told.
    pub(crate) pinned: &'static str,
    /// Its folder in the cache.
    pub(crate) folder: &'static str,
    /// Its files by name; the first is `go.mod`.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// What `go build` is asked for.
    pub(crate) targets: &'static [&'static str],
    /// Programs that `go test -c` makes, and their packages.
    pub(crate) test_programs: &'static [(&'static str, &'static str)],
    /// What must come of it.
    pub(crate) programs: &'static [&'static str],
    /// Variables of the program that are told its version.
    pub(crate) version_variables: fn(version: &str) -> Vec<(&'static str, String)>,
    /// What the module and its build cache take.
    pub(crate) space_mib: u64,
}

impl GoModule {
    fn declaration(&self) -> &'static str {
        self.files.first().map_or("", |(_, text)| text)
    }

    /// The pinned version, as `go.mod` says it.
    pub(crate) fn version(&self) -> &'static str {
        self.declaration()
            .lines()
            .find_map(|line| line.trim().trim_start_matches("require ").strip_prefix(self.pinned)?.strip_prefix(' '))
            .map_or("unknown", |rest| rest.split_whitespace().next().unwrap_or("unknown"))
    }

    /// The folder that holds all programs, built now if need be.
    pub(crate) fn ensure(&self, place: &Place, progress: &Progress) -> Result<PathBuf> {
        let base = place.cache().join(self.folder);
        let folder = base.join(format!("{}-{}", self.version(), self.recipe_hash()));
        if folder.exists() {
            return Ok(folder);
        }
        require_space(&base, &format!("{} and its build cache", self.name), self.space_mib, CACHE_VARIABLE)?;
        let lock_path = base.join("build.lock");
        let lock =
            std::fs::File::create(&lock_path).map_err(Error::io(format!("cannot write {}", lock_path.display())))?;
        lock.lock().map_err(Error::io(format!("cannot lock {}", lock_path.display())))?;
        if folder.exists() {
            return Ok(folder);
        }
        let step = format!("{} {} from source", self.name, self.version());
        progress.step(&step, || self.build(&base, &folder, |line| progress.note(&step, line)))?;
        Ok(folder)
    }

    /// The folder that the user named instead, if it holds all programs.
    pub(crate) fn given(&self, folder: PathBuf) -> Result<PathBuf> {
        let missing: Vec<&str> =
            self.programs.iter().copied().filter(|program| !folder.join(program).is_file()).collect();
        if missing.is_empty() && folder.is_absolute() {
            return Ok(folder);
        }
        Err(Error::Invalid(if missing.is_empty() {
            format!("{KUBERNETES_VARIABLE}={} must be an absolute path", folder.display())
        } else {
            format!(
                "{KUBERNETES_VARIABLE}={} lacks {}; put them there, or unset the variable to have all of {} built",
                folder.display(),
                missing.join(", "),
                self.name
            )
        }))
    }

    fn recipe_hash(&self) -> String {
        let hash = self.files.iter().fold(Sha256::new(), |hash, (_, text)| hash.chain_update(text));
        // A cache of before lacks a program that was added since.
        let hash = self.programs.iter().fold(hash, |hash, program| hash.chain_update(program).chain_update([0]));
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    fn build(&self, base: &Path, folder: &Path, note: impl Fn(&str)) -> Result<()> {
        let source = base.join("source");
        for (name, text) in self.files {
            write_file(&source.join(name), text)?;
        }
        let unfinished = base.join("unfinished");
        let _ = std::fs::remove_dir_all(&unfinished);
        crate::error::make_dir(&unfinished)?;

        self.go(base, &["build"], &unfinished, self.targets, &note)?;
        for (program, package) in self.test_programs {
            self.go(base, &["test", "-c", "-vet=off"], &unfinished.join(program), &[package], &note)?;
        }
        for program in self.programs {
            if !unfinished.join(program).is_file() {
                return Err(Error::Invalid(format!(
                    "the build of {} made no {program}; is it among the programs of lab/{}/go.mod?",
                    self.name, self.folder
                )));
            }
        }
        std::fs::rename(&unfinished, folder)
            .map_err(Error::io(format!("cannot move the programs to {}", folder.display())))
    }

    /// One run of go; tells from time to time how far it is.
    fn go(&self, base: &Path, verb: &[&str], output: &Path, packages: &[&str], note: &impl Fn(&str)) -> Result<()> {
        let mut go = Command::new("go");
        go.args(verb)
            .args(["-v", "-trimpath", "-buildvcs=false", "-ldflags", &self.linker_flags(), "-o"])
            .arg(output)
            .args(packages)
            .current_dir(base.join("source"))
            .env("CGO_ENABLED", "0")
            .envs(self.toolchain()?)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = go.spawn().map_err(|error| self.go_missing(error))?;
        let mut said = Vec::new();
        let mut compiled = 0_u32;
        if let Some(stderr) = child.stderr.take() {
            for line in lines_of(stderr) {
                if line.contains(' ') {
                    said.push(line);
                } else {
                    compiled += 1;
                    if compiled.is_multiple_of(100) {
                        note(&format!("{compiled} packages compiled, now {line}"));
                    }
                }
            }
        }
        let status = child.wait().map_err(Error::io("cannot wait for go"))?;
        if status.success() { Ok(()) } else { Err(self.explain(base, &said)) }
    }

    fn linker_flags(&self) -> String {
        (self.version_variables)(self.version())
            .into_iter()
            .fold("-s -w".to_owned(), |flags, (name, value)| format!("{flags} -X {name}={value}"))
    }

    /// Lets an older Go fetch the one that the module needs; refuses one that cannot.
    fn toolchain(&self) -> Result<BTreeMap<&'static str, &'static str>> {
        let output = Command::new("go").args(["env", "GOVERSION"]).output().map_err(|error| self.go_missing(error))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let needed = self.declaration().lines().find_map(|line| line.strip_prefix("go ")).unwrap_or_default();
        match (numbers(text.trim_start_matches("go")), numbers(needed)) {
            (Some(have), Some(need)) if have >= need => Ok(BTreeMap::new()),
            (Some(have), _) if have >= OLDEST_GO_THAT_FETCHES_ANOTHER => Ok(BTreeMap::from([("GOTOOLCHAIN", "auto")])),
            _ => Err(Error::MissingTool {
                program: format!("Go {needed}"),
                purpose: format!("it builds {} {}; found {text:?}", self.name, self.version()),
                remedy: format!(
                    "install Go {needed} (any Go from 1.21 on fetches it by itself), or set {KUBERNETES_VARIABLE} to a folder with the binaries"
                ),
            }),
        }
    }

    fn go_missing(&self, error: std::io::Error) -> Error {
        if error.kind() == std::io::ErrorKind::NotFound {
            Error::MissingTool {
                program: "go".into(),
                purpose: format!("it builds {} {} from its modules", self.name, self.version()),
                remedy: format!(
                    "apt-get install golang-go, `make prerequisites`, or set {KUBERNETES_VARIABLE} to a folder with the binaries"
                ),
            }
        } else {
            Error::Io { doing: "cannot run go".into(), source: error }
        }
    }

    fn explain(&self, base: &Path, said: &[String]) -> Error {
        let find = |words: &[&str]| said.iter().find(|line| words.iter().any(|word| line.contains(word))).cloned();
        let what = format!("the modules of {} {}", self.name, self.version());
        if find(&["no space left on device"]).is_some() {
            let free_mib = crate::place::free_mib(base).unwrap_or(0);
            return Error::DiskFull {
                path: base.to_owned(),
                what,
                needed_mib: self.space_mib,
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
            remedy: format!(
                "run `go build {}` in {} to see more",
                self.targets.join(" "),
                base.join("source").display()
            ),
        }
    }
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: GoModule = GoModule {
        name: "Small",
        pinned: "example.org/small",
        folder: "small",
        files: &[("go.mod", "module x\n\ngo 1.25.0\n\nrequire example.org/small v1.2.3\n")],
        targets: &["."],
        test_programs: &[],
        programs: &["small"],
        version_variables: |version| vec![("example.org/small.Version", version.to_owned())],
        space_mib: 1,
    };

    #[test]
    fn the_version_comes_from_the_module() {
        assert_eq!(SMALL.version(), "v1.2.3");
        assert_eq!(SMALL.linker_flags(), "-s -w -X example.org/small.Version=v1.2.3");
    }

    #[test]
    fn a_folder_without_the_programs_is_refused_by_name() {
        let message = SMALL.given(std::env::temp_dir().join("nothing-here")).unwrap_err().to_string();
        assert!(message.contains("lacks small") && message.contains(KUBERNETES_VARIABLE), "{message}");
    }

    #[test]
    fn failures_of_go_become_one_line() {
        let said = |line: &str| SMALL.explain(&std::env::temp_dir(), &[line.to_owned()]).to_string();
        assert!(said("go: x@v1: dial tcp: lookup proxy: no such host").contains("check the network"));
        assert!(said("link: write /x: no space left on device").contains(CACHE_VARIABLE));
        assert!(said("undefined: x").contains("undefined: x"));
    }
}
