package vmcrds

// SystemNamespace is where KubeVirt is installed.
const SystemNamespace = "kubevirt"

// Accounts of KubeVirt. Only they may write the status of a machine: see API.
const (
	APIAccount        = "system:serviceaccount:" + SystemNamespace + ":kubevirt-apiserver"
	ControllerAccount = "system:serviceaccount:" + SystemNamespace + ":kubevirt-controller"
	HandlerAccount    = "system:serviceaccount:" + SystemNamespace + ":kubevirt-handler"
	syncAccount       = "system:serviceaccount:" + SystemNamespace + ":kubevirt-synchronization-controller"
)

// writers are the accounts whose writes to the status of a machine count.
var writers = []string{APIAccount, ControllerAccount, HandlerAccount, syncAccount}
