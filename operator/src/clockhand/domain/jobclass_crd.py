"""The definition of JobClass, with the rules that say on apply what the parser would say later."""

from __future__ import annotations

from clockhand.domain import cel, definition, forms, jobclass_fields

KIND = "JobClass"
PLURAL = "jobclasses"
_FORMS = {"namespaces[]": (forms.NAMESPACE,), "images[]": (forms.IMAGE,), "maxResources[]": (forms.QUANTITY,)}


RESOURCE = definition.Resource(
    kind=KIND,
    plural=PLURAL,
    short_name="jclass",
    text="Pods that people may run on a schedule who may not create any, and what of them is theirs to choose.",
    spec_text="Which pods, for whom, and what is left to their users.",
    table=jobclass_fields.TABLE,
    columns=(
        ("NAMESPACES", "string", ".spec.namespaces", "Whose jobs may be of the class"),
        ("ALLOW", "string", ".spec.allow", "What users may set"),
        ("ACCOUNT", "string", ".spec.template.spec.serviceAccountName", "The service account of the pods"),
        ("AGE", "date", ".metadata.creationTimestamp", "Age of the object"),
    ),
    wide_columns=(("IMAGES", "string", ".spec.images", "The images of which users may choose one"),),
    status=None,
    of_spec=list,
    of_field=cel.by_form(_FORMS),
    restart_policy="Never",
    needed_of_containers=("name", "image"),
    namespaced=False,
)
