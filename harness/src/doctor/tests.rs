//! An examination of hosts that are made up.

use super::*;

fn quiet() -> Examination {
    Examination {
        host: HostFacts {
            cpu: "AMD EPYC 9654".into(),
            cores: 16,
            memory: 64 << 30,
            arch: "x86_64".into(),
            os: "Debian GNU/Linux 13 (trixie)".into(),
            kernel: "6.12.43".into(),
            governor: Some("performance".into()),
            smt: Some(false),
            cgroup: "v2".into(),
            virtualisation: None,
            swap: 0,
            boot_id: "2f0e".into(),
        },
        turbo: Some(false),
        caps: None,
        now: Some(Now { load: [0.1, 0.05, 0.01], busy_share: 0.002, steal_share: 0.0 }),
        open_files: Some([1024, 1_048_576]),
        docker: Ok("28.3.1".into()),
        tools: [("java", "17.0.15"), ("mvn", "3.8.7"), ("npm", "11.19.1"), ("pip", "23.0.1")]
            .map(|(tool, version)| (tool.to_owned(), Some(version.to_owned())))
            .into(),
        cache: Cache {
            dir: "/home/weir/.cache/weir".into(),
            free: 100 << 30,
            pieces: vec![("kafka 4.4.0".into(), Presence::Proven), ("chdb 26.7.3-stable.1".into(), Presence::Proven)],
        },
        flags: Vec::new(),
        obstacles: Vec::new(),
    }
}

fn shared() -> Examination {
    let mut found = quiet();
    found.host = HostFacts {
        governor: None,
        smt: Some(true),
        cgroup: "v1".into(),
        virtualisation: Some("kvm".into()),
        swap: 2 << 30,
        ..found.host
    };
    found.turbo = None;
    let why = Unenforced::NotPermitted { dir: "/sys/fs/cgroup/cpu".into(), euid: 1000 };
    let now = Now { load: [3.0, 2.5, 2.0], busy_share: 0.61, steal_share: 0.043 };
    found.flags = host::flags(&found.host, &Hierarchy::none(why.clone())).into_iter().map(Remark::from).collect();
    found.flags.extend(noise(&now).map(Remark::from));
    found.caps = Some(Refusal { reason: why.to_string(), remedy: why.remedy() });
    found.now = Some(now);
    found.docker = Err("/var/run/docker.sock: No such file or directory (os error 2)".into());
    found.tools[1].1 = None;
    found.tools[2].1 = None;
    found.cache.pieces[0].1 = Presence::Unproven;
    found.cache.pieces[1].1 = Presence::Absent;
    found.obstacles = vec![Obstacle::from(&SetupError::MissingTools { tools: vec![Tool::Npm] })];
    found
}

#[test]
fn a_quiet_host() {
    insta::assert_snapshot!(quiet(), @"");
}

#[test]
fn a_shared_host_without_rights() {
    insta::assert_snapshot!(shared(), @"");
}

#[test]
fn the_same_for_machines() {
    let value = serde_json::to_value(shared()).unwrap();
    assert_eq!(value["host"]["cores"], 16);
    assert_eq!(
        value["flags"][3],
        serde_json::json!({
            "flag": "swap_on", "bytes": 2_u64 << 30,
            "wording": "the host has 2 GiB of swap; the arm's own is off", "remedy": "`swapoff -a`",
        })
    );
    assert_eq!(value["cache"]["pieces"][1], serde_json::json!(["chdb 26.7.3-stable.1", "absent"]));
    assert_eq!(value["obstacles"][0]["hint"], "apt-get install -y npm");
    assert_eq!(value["docker"]["Err"], "/var/run/docker.sock: No such file or directory (os error 2)");
}

#[test]
fn turbo_has_two_spellings() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("sys/devices/system/cpu");
    assert_eq!(turbo(dir.path()), None);
    std::fs::create_dir_all(cpu.join("cpufreq")).unwrap();
    std::fs::write(cpu.join("cpufreq/boost"), "1\n").unwrap();
    assert_eq!(turbo(dir.path()), Some(true));
    std::fs::create_dir_all(cpu.join("intel_pstate")).unwrap();
    std::fs::write(cpu.join("intel_pstate/no_turbo"), "1\n").unwrap();
    assert_eq!(turbo(dir.path()), Some(false));
}

#[test]
fn another_docker_socket_is_looked_at() {
    assert_eq!(docker_socket(None), Path::new(DOCKER));
    assert_eq!(docker_socket(Some("unix:///run/user/1000/docker.sock")), Path::new("/run/user/1000/docker.sock"));
}

#[test]
fn an_obstacle_names_its_cause() {
    let error = SetupError::io("write to", "/nowhere")(std::io::Error::other("read-only"));
    assert_eq!(Obstacle::from(&error).message, "cannot write to /nowhere: read-only");
}
