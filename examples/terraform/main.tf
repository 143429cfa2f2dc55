terraform {
  required_providers {
    helm = {
      source  = "hashicorp/helm"
      version = "~> 3.0"
    }
  }
}

provider "helm" {
  kubernetes = {
    config_path = "~/.kube/config"
  }
}

# The provider runs helm, which reads the cluster: it needs no gitops.enabled.
resource "helm_release" "drawbridge" {
  name             = "drawbridge"
  repository       = "oci://ghcr.io/drawbridge-dev/charts"
  chart            = "drawbridge"
  version          = "0.1.0"
  namespace        = "drawbridge-system"
  create_namespace = true
  wait             = true
  timeout          = 300

  values = [yamlencode({
    deployment = {
      replicas = 3
    }
    webhook = {
      failurePolicy = "Fail"
    }
    times = {
      retention = "24h"
    }
  })]
}
