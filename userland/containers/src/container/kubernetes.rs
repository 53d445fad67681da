// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Kubernetes calls containers: the labels that it hands to engines, and its logs.
//!
//! Labels: `staging/src/k8s.io/kubelet/pkg/types/labels.go`; containerd's own annotations:
//! `internal/cri/annotations/annotations.go`; CRI-O's: `libpod/annotations` of podman, from
//! which it takes them. Logs: `pkg/kubelet/kuberuntime/legacy.go` (the links in
//! `/var/log/containers`) and `helpers.go` (`/var/log/pods`).

use super::cgroup_path::is_hex;
use super::host::Host;
use super::known::{Findings, KnownContainer};
use super::{Pod, Runtime};
use std::collections::HashMap;

/// Labels, or annotations.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(transparent)]
pub(super) struct Labels(HashMap<String, String>);

impl Labels {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let value = self.0.get(key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    }

    /// The first of several keys that is there.
    pub(super) fn one_of(&self, keys: &[&str]) -> Option<&str> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// The pod that they name, and the container's name in it.
    pub(super) fn pod(&self) -> Option<Pod> {
        let name = [
            "io.kubernetes.pod.name",
            "io.kubernetes.cri.sandbox-name",
            "io.kubernetes.cri-o.KubeName",
        ];
        let namespace = [
            "io.kubernetes.pod.namespace",
            "io.kubernetes.cri.sandbox-namespace",
            "io.kubernetes.cri-o.Namespace",
        ];
        let container = [
            "io.kubernetes.container.name",
            "io.kubernetes.cri.container-name",
        ];
        Some(Pod {
            name: self.one_of(&name)?.to_owned(),
            namespace: self.one_of(&namespace).map(str::to_owned),
            container: self.container(&container),
        })
    }

    fn container(&self, keys: &[&str]) -> Option<String> {
        let kind = [
            "io.kubernetes.cri.container-type",
            "io.kubernetes.cri-o.ContainerType",
        ];
        if self.one_of(&kind) == Some("sandbox") {
            // As the kubelet calls it: it runs nothing but a process that waits.
            return Some("POD".to_owned());
        }
        self.one_of(keys).map(str::to_owned)
    }
}

/// Adds containers and pods that only the logs name, as where the engine's own state cannot be
/// read.
pub(super) fn complete(host: &Host, findings: &mut Findings) {
    if let Some(folder) = findings.note(host.folder("/var/log/pods")) {
        let names = findings.note(folder.names().map(Some)).unwrap_or_default();
        let pods = names.iter().filter_map(|name| of_folder(name));
        findings.pods.extend(pods);
    }
    let Some(folder) = findings.note(host.folder("/var/log/containers")) else {
        return;
    };
    let names = findings.note(folder.names().map(Some)).unwrap_or_default();
    for (id, pod) in names.iter().filter_map(|name| of_link(name)) {
        let same = |known: &&mut KnownContainer| known.id == id && known.user.is_none();
        match findings.known.iter_mut().find(same) {
            Some(known) => known.pod = known.pod.take().or(Some(pod)),
            None => {
                let mut known = KnownContainer::new(Runtime::Engine, id.to_owned(), None);
                known.pod = Some(pod);
                findings.known.push(known);
            }
        }
    }
}

/// The uid, and the pod, of `NAMESPACE_POD_UID`.
fn of_folder(name: &str) -> Option<(String, Pod)> {
    let mut parts = name.split('_').map(str::to_owned);
    let (namespace, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    let pod = Pod {
        name,
        namespace: Some(namespace),
        container: None,
    };
    Some((uid, pod))
}

/// The id, and the pod with the container, of `POD_NAMESPACE_CONTAINER-ID.log`; none of
/// these names has a `_`.
fn of_link(name: &str) -> Option<(&str, Pod)> {
    let (rest, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    let mut parts = rest.split('_');
    let mut next = || {
        parts
            .next()
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
    };
    let pod = Pod {
        name: next()?,
        namespace: Some(next()?),
        container: Some(next()?),
    };
    let is_whole = id.len() == 64 && is_hex(id) && parts.next().is_none();
    is_whole.then_some((id, pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_log_tells_the_pod() {
        let id = "ab".repeat(32);
        let name = format!("coredns-5d78c9869d-2xk7p_kube-system_coredns-{id}.log");
        let (found, pod) = of_link(&name).unwrap();
        assert_eq!(found, id);
        assert_eq!(pod.to_string(), "kube-system/coredns-5d78c9869d-2xk7p");
        assert_eq!(pod.container.as_deref(), Some("coredns"));
        for name in ["x.log", "a_b_c-1234.log", "a_b-__.log"] {
            assert!(of_link(name).is_none(), "{name}");
        }
        assert!(of_link(&format!("a_b-{id}.log")).is_none());
    }
}
