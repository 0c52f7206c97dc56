// Package suite runs network-policy-api's conformance tests as upstream's own TestConformance does, with all features,
// but with longer time limits for the API: upstream gives some tests 20 seconds in all, of which denied probes take
// 18 by themselves. The API sets no upper limit for a conformant implementation.
package suite

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/conformance/tests"
	timeouts "sigs.k8s.io/network-policy-api/conformance/utils/config"
	"sigs.k8s.io/network-policy-api/conformance/utils/suite"
)

func TestConformance(t *testing.T) {
	restConfig, err := config.GetConfig()
	if err != nil {
		t.Fatalf("cannot load the Kubernetes client configuration: %v", err)
	}
	runtimeClient, err := client.New(restConfig, client.Options{})
	if err != nil {
		t.Fatalf("cannot create a Kubernetes client: %v", err)
	}
	clientSet, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		t.Fatalf("cannot create a Kubernetes client: %v", err)
	}
	if err := v1alpha1.Install(runtimeClient.Scheme()); err != nil {
		t.Fatalf("cannot register the policy API: %v", err)
	}
	conformance := suite.New(suite.Options{
		Client:                     runtimeClient,
		ClientSet:                  clientSet,
		KubeConfig:                 *restConfig,
		CleanupBaseResources:       true,
		EnableAllSupportedFeatures: true,
		TimeoutConfig: timeouts.TimeoutConfig{
			CreateTimeout: 2 * time.Minute,
			DeleteTimeout: 2 * time.Minute,
			GetTimeout:    5 * time.Minute,
		},
	})
	awaitFormerRun(t, clientSet)
	conformance.Setup(t)
	conformance.Run(t, tests.ConformanceTests)
}

// awaitFormerRun waits until the namespaces of a former run are gone: the suite deletes them at its end and does not wait.
func awaitFormerRun(t *testing.T, clientSet kubernetes.Interface) {
	isGone := func(ctx context.Context) (bool, error) {
		namespaces, err := clientSet.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, namespace := range namespaces.Items {
			if strings.HasPrefix(namespace.Name, "network-policy-conformance-") && namespace.DeletionTimestamp != nil {
				return false, nil
			}
		}
		return true, nil
	}
	if err := wait.PollUntilContextTimeout(context.Background(), time.Second, 5*time.Minute, true, isGone); err != nil {
		t.Fatalf("namespaces of a former run are still being deleted: %v", err)
	}
}
