//! The other build of this command, in which the lab's experiments run on simulated machines.
//!
//! It is the same sources compiled with `--cfg duramen_machine`, kept in the folder `machine` of
//! Cargo's target directory. If `cargo run` started this command, Cargo brings the other build up
//! to date; otherwise it must exist.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use duramen_lab::Calibrated;

use crate::failure::{Failure, Result};
use crate::progress::Narrator;

/// Runs the other build with `args`; it inherits the standard streams.
pub(crate) fn run(args: &[&str], narrator: Narrator) -> Result<()> {
    let binary = binary(narrator)?;
    let failed = |error| Failure::Run(format!("cannot start `{}`: {error}", binary.display()));
    let status = Command::new(&binary).args(args).status().map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Run("the experiments on the simulated machine failed; the reason is above".to_owned()))
}

/// Returns what the other build measures for `lab calibrate`.
pub(crate) fn calibrated(narrator: Narrator) -> Result<Vec<Calibrated>> {
    let binary = binary(narrator)?;
    narrator.say("measuring on the simulated machine");
    let output =
        Command::new(&binary).args(["lab", "calibrate", "--json"]).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::Run(format!("cannot start `{}`: {error}", binary.display())))?;
    if !output.status.success() {
        return Err(Failure::Run("measuring on the simulated machine failed; the reason is above".to_owned()));
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let parsed: std::result::Result<_, _> = lines.lines().map(serde_json::from_str).collect();
    parsed.map_err(|error| Failure::Run(format!("the machine build printed an invalid measurement: {error}")))
}

fn binary(narrator: Narrator) -> Result<PathBuf> {
    let own =
        env::current_exe().map_err(|error| Failure::Run(format!("cannot find the path of this program: {error}")))?;
    // `target/release/duramen` -> `target/machine/release/duramen`
    let profile = own.parent().unwrap_or(Path::new("."));
    let target = profile.parent().unwrap_or(Path::new(".")).join("machine");
    let binary = target.join(profile.file_name().unwrap_or_default()).join(own.file_name().unwrap_or_default());
    let (Some(cargo), Some(manifest)) = (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR")) else {
        return if binary.exists() {
            Ok(binary)
        } else {
            Err(Failure::Usage(format!(
                "experiments on simulated machines need the machine build, which is missing at `{}`; start the command \
                 with `cargo run --release -- lab run ...`, which builds it",
                binary.display()
            )))
        };
    };
    narrator.say("updating the machine build (some minutes the first time)");
    let mut command = Command::new(cargo);
    command.arg("build").arg("--manifest-path").arg(Path::new(&manifest).join("Cargo.toml"));
    command.arg("--target-dir").arg(&target).env("RUSTFLAGS", "--cfg duramen_machine").arg("--quiet");
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    let status = command.status().map_err(|error| Failure::Run(format!("cannot start Cargo: {error}")))?;
    if status.success() { Ok(binary) } else { Err(Failure::Run("the machine build failed".to_owned())) }
}
