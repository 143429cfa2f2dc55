package app

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// whoAmI asks the API server for our user name.
func whoAmI(ctx context.Context, reviews authenticationclient.SelfSubjectReviewsGetter) (string, error) {
	review, err := reviews.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("learn our own account: %w", err)
	}
	if review.Status.UserInfo.Username == "" {
		return "", fmt.Errorf("learn our own account: the API server sees us without a name")
	}
	return review.Status.UserInfo.Username, nil
}

// servesWorkloadRef reports whether pods of this API server name their group in
// spec.workloadRef. Only Kubernetes 1.35 has the field; from 1.36 on it is
// spec.schedulingGroup, which our types know.
func servesWorkloadRef(server discovery.ServerVersionInterface) (bool, error) {
	info, err := server.ServerVersion()
	if err != nil {
		return false, fmt.Errorf("learn the version of the API server: %w", err)
	}
	v, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return false, fmt.Errorf("learn the version of the API server: %w", err)
	}
	return v.Major() == 1 && v.Minor() == 35, nil
}
