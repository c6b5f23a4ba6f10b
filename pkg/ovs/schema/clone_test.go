package schema

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// TestClone compares the copies with the rows with every column filled. So it finds a new column that is not copied.
func TestClone(t *testing.T) {
	for _, row := range []model.Model{&OpenVSwitch{}, &Datapath{}, &CTZone{}, &CTTimeoutPolicy{}, &Bridge{}, &Port{},
		&QoS{}, &Interface{}} {
		t.Run(fmt.Sprintf("%T", row), func(t *testing.T) {
			if _, ok := row.(model.CloneableModel); !ok {
				t.Fatal("libovsdb copies it by way of JSON")
			}
			fill(t, reflect.ValueOf(row).Elem())
			copied := model.Clone(row)
			if !reflect.DeepEqual(copied, row) {
				t.Fatalf("copy is %+v, want %+v", copied, row)
			}
			a, b := reflect.ValueOf(row).Elem(), reflect.ValueOf(copied).Elem()
			for i := range a.NumField() {
				switch f := a.Field(i); f.Kind() {
				case reflect.Pointer, reflect.Map, reflect.Slice:
					if f.Pointer() == b.Field(i).Pointer() {
						t.Errorf("%s is shared with the copy", a.Type().Field(i).Name)
					}
				}
			}
		})
	}
}

// fill gives every field a value that is not its zero value.
func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Int:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key)
		fill(t, value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	default:
		t.Fatalf("no value for a %s", v.Kind())
	}
}
